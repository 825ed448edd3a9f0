"""Posteriors around a mode of few pictures: draws with the right covariance, and choices by validation alone."""

import pytest
import torch

from posterity.algebra import FlooredMatrix, Kronecker, scaled_identity
from posterity_studies import Preset, find
from posterity_studies.shared.last_stage import made_up
from posterity_studies.shared.rivals.training import nll
from posterity_studies.shared.shots import MADE_UP, drawn_maps
from posterity_studies.studies.few_shot_modes import cells, methods
from posterity_studies.studies.few_shot_modes.cells import Bench
from posterity_studies.studies.few_shot_modes.methods import LowRank, Mode, Posterior, chosen, posterior_block

STUDY = find("few-shot-modes")


def of_rank(n: int, rank: int, seed: int) -> torch.Tensor:
    rows = torch.randn(rank, n, generator=torch.Generator().manual_seed(seed))
    return rows.mT @ rows / n


@pytest.mark.parametrize("rank", [3, 16, 40])
def test_a_sketch_finds_a_factor_of_low_rank_and_all_of_one_of_full_rank(rank, monkeypatch):
    monkeypatch.setattr(methods, "RANK", 8)
    factor = of_rank(40, rank, rank)
    found = LowRank.of(factor)
    made = (found.vectors * found.values.float()) @ found.vectors.mT
    torch.testing.assert_close(made, factor, rtol=0, atol=1e-4)
    frame = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(9))).Q
    torch.testing.assert_close(found.along(frame).float(), ((factor @ frame) * frame).sum(0), rtol=1e-3, atol=1e-4)


def covariance(block, beta: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    spread = block.spread(beta)
    drawn = torch.stack([block.noise(spread, generator) for _ in range(40_000)]).flatten(1).double()
    return drawn.mT @ drawn / len(drawn)


def test_draws_beside_an_isotropic_prior_have_the_exact_covariance():
    left, right = of_rank(2, 1, 0), of_rank(3, 2, 1)
    block = posterior_block(scaled_identity(0.5, (2, 3)), (LowRank.of(left), LowRank.of(right)))
    total = 2 * torch.kron(left, right) + 0.5 * torch.eye(6)
    torch.testing.assert_close(covariance(block, 2.0), total.inverse().double(), rtol=0, atol=0.05)


def test_draws_beside_a_learned_prior_are_exact_where_the_data_shares_its_frame():
    left, right = of_rank(2, 4, 2), of_rank(3, 6, 3)
    prior = FlooredMatrix(Kronecker(left, right), 0.3, 0.5)
    block = posterior_block(prior, (LowRank.of(left @ left), LowRank.of(right @ right)))
    total = 0.3 * torch.kron(left, right) + 0.5 * torch.eye(6) + 2 * torch.kron(left @ left, right @ right)
    torch.testing.assert_close(covariance(block, 2.0), total.inverse().double(), rtol=0, atol=0.05)
    expected = torch.linalg.eigvalsh(
        torch.linalg.solve(total - 2 * torch.kron(left @ left, right @ right), torch.kron(left @ left, right @ right))
    )
    torch.testing.assert_close(block.spectrum().sort().values.float(), expected.sort().values, rtol=1e-3, atol=1e-4)


def bench() -> Bench:
    arguments = next(cell for cell in STUDY.grid[Preset.smoke] if cell["who"] == "learned")
    where = {name: arguments[name] for name in ("unknown", "size", "shots", "seed", "classes", "tested", "strangers")}
    return Bench(made_up(), drawn_maps(MADE_UP, **where), arguments)


def test_scales_and_temperature_are_those_of_least_validation_nll():
    made = bench()
    prior = made._prior(made._even(1.0))
    mode = Mode.of(made._under("one", made._even(1.0)).model, prior.blocks, made.shots.train)
    posterior = Posterior.at_mode(mode, prior)
    found = chosen(posterior, made.shots.held, ("none", "catoni"), 3)
    losses = {
        (name, tau): nll(probs, made.shots.held[1])
        for name in ("none", "catoni")
        for tau, probs in posterior.predict(made.shots.held[0], posterior.beta(name), methods.TAUS, 3).items()
    }
    assert losses[found.scales, found.tau] == found.held == min(losses.values())


def test_a_network_goes_on_until_a_piece_gains_next_to_nothing():
    made = bench()
    started = made._under("one", made._even(1.0))
    assert started.pieces == 1
    arrived = made._arrived(started)
    assert arrived.gained <= 0.01 * len(made.shots.train[1]) or arrived.pieces == made.arguments["pieces"]
    assert made.notes["one"]["pieces"] == arrived.pieces


def test_test_pictures_take_no_part_in_any_choice():
    """With other test pictures, the same strengths, scales, temperatures and validation losses."""
    one, other = bench(), bench()
    other.shots.test[0].add_(5.0)
    other.shots.unknown.add_(1.0)
    kept = ("strength", "scales", "beta", "tau", "held")
    first, second = ({k: b.learned()["learned"][k] for k in kept} for b in (one, other))
    assert first == second
    assert one.notes == other.notes


def test_a_killed_cell_goes_on_with_the_networks_it_had(tmp_path, monkeypatch):
    monkeypatch.setattr(Bench, "_file", lambda self, mode: tmp_path / f"{mode.name} {mode.pieces}.safetensors")
    first, second = bench(), bench()
    one = first._arrived(first._under("one", first._even(1.0)))
    monkeypatch.setattr(cells, "train", None)  # which would fail
    other = second._arrived(second._under("one", second._even(1.0)))
    assert first.notes == second.notes
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name])
