"""Certificates: what they say, what they refuse, and that their records can be checked."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.algebra import DiagonalMatrix
from posterity.data.provenance import Provenance
from posterity.errors import (
    BadAudit,
    InfiniteDivergence,
    Overlap,
    UndeclaredChoice,
    UnfrozenState,
    UnknownPast,
)
from posterity.pacbayes import FAMILY, Certificate, clopper_pearson, klinv, maurer
from posterity.pacbayes.optimise import Descent


def blobs(n: int, seed: int, spread: float = 0.7):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=generator)
    centres = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
    return centres[y] + spread * torch.randn(n, 2, generator=generator), y


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 3))


@pytest.fixture(scope="module")
def learned():
    """A network and the prior it learned from other data."""
    model = small()
    fit = pt.learn(model, blobs(300, 1), progress=False, training={"epochs": 60, "lr": 0.02})
    return model, fit.posterior


def test_one_draw_an_example_from_the_prior_is_a_binomial_sample(learned):
    model, prior = learned
    c = pt.certify(model, prior, prior, blobs(400, 2), progress=False, generator=torch.Generator().manual_seed(0))
    assert (c.rule, c.n, c.kl, c.delta_draws) == ("binomial", 400, 0.0, 0.0)
    assert c.bound == clopper_pearson(c.errors, 400, 1 - 0.95) == c.recomputed()
    assert c.gibbs == c.errors / 400 < c.bound < maurer(c.gibbs, 0.0, 400, 0.05)
    assert c.holdout.error < c.holdout.bound < 1


def test_the_bound_is_klinv_of_klinv_with_every_number_in_the_record(learned):
    model, prior = learned
    cold = prior.tempered(0.5)
    c = pt.certify(model, cold, prior, blobs(400, 2), progress=False, generator=torch.Generator().manual_seed(0))
    assert (c.rule, c.n, c.replicates) == ("klinv", 400, 40_000)
    assert c.kl == pytest.approx(float(cold.kl(prior)))
    assert c.delta + c.delta_draws == pytest.approx(0.05)
    assert c.upper == klinv(c.gibbs, math.log(1 / c.delta_draws) / c.replicates)
    assert c.bound == maurer(c.upper, c.kl, c.n, c.delta)
    assert c.gibbs < c.upper < c.bound < 1
    assert c.recomputed() == c.bound


def test_the_excess_over_the_prior_s_mean_is_certified_by_three_coins(learned):
    model, prior = learned
    cold = prior.tempered(0.8)
    options = {"progress": False, "generator": torch.Generator().manual_seed(0)}
    c = pt.certify(model, cold, prior, blobs(400, 2), methods=["excess"], **options)
    plain = pt.certify(model, cold, prior, blobs(400, 2), **options)
    assert c.rule == "excess"
    assert c.recomputed() == c.bound
    assert c.gibbs == pytest.approx(plain.gibbs, abs=0.01)
    no_less, more = c.shares
    assert c.gibbs == pytest.approx(c.errors / 400 + no_less + more - 1)
    mean = clopper_pearson(c.errors, 400, c.delta / 3)
    coins = [
        maurer(klinv(share, math.log(2 / c.delta_draws) / c.replicates), c.kl, 400, c.delta / 3) for share in c.shares
    ]
    assert c.bound == pytest.approx(mean + sum(coins) - 1)


def test_of_a_declared_family_the_tightest_way_is_taken_and_paid_for(learned):
    model, prior = learned
    wide = prior.tempered(3.0)
    data = blobs(60, 2)
    single = [pt.certify(model, wide, prior, data, methods=[method], progress=False) for method in FAMILY]
    family = pt.certify(model, wide, prior, data, methods=FAMILY, progress=False)
    assert family.payments == (("methods", 4),)
    best = min(single, key=lambda c: c.bound)
    assert family.predictor == best.predictor
    assert family.bound == clopper_pearson(best.errors, 60, (1 - 0.95) / 4) > best.bound
    assert family.recomputed() == family.bound
    assert "more examples" in family.advice


def test_fifty_examples_and_a_prior_without_errors_certify_six_percent():
    model = small()
    fit = pt.learn(model, blobs(300, 3), progress=False, training={"epochs": 60, "lr": 0.02})
    cold = fit.posterior.tempered(1e-4)
    c = pt.certify(model, cold, cold, blobs(50, 1, spread=0.2), progress=False)
    assert (c.n, c.errors) == (50, 0)
    assert c.bound <= 0.06


def test_the_gibbs_error_agrees_with_whole_networks_drawn_one_by_one(learned):
    model, prior = learned
    x, y = blobs(200, 3)
    wide = prior.tempered(20.0)
    found = pt.pacbayes.gibbs_risk(
        model, wide, (x, y), passes=50, progress=False, generator=torch.Generator().manual_seed(0)
    )
    fresh = torch.Generator().manual_seed(1)
    draws = pt.predict(model, wide, x, method="sampled", samples=500, keep_draws=True, generator=fresh).draws
    errors = (draws.argmax(-1) != y).double().mean(1)
    assert 0.02 < float(errors.mean()) < 0.9
    # Draws of whole networks vary together over the examples: theirs is the larger error.
    assert abs(found.error - float(errors.mean())) < 5 * float(errors.std()) / 500**0.5
    assert found.count == 50 * 200


def test_it_holds_back_where_the_prior_has_seen_the_data(learned):
    model, prior = learned
    seen, fresh = blobs(300, 1), blobs(100, 4)
    both = tuple(torch.cat(pair) for pair in zip(seen, fresh, strict=True))
    with pytest.raises(Overlap, match="300 of the 400"):
        pt.certify(model, prior, prior, both, progress=False)


def test_a_learned_prior_without_a_past_needs_someone_to_vouch_for_it(learned):
    model, prior = learned
    nameless = prior.with_provenance(Provenance.unknown("no one wrote it down"))
    with pytest.raises(UnknownPast, match="vouched="):
        pt.certify(model, nameless, nameless, blobs(50, 5), progress=False)
    c = pt.certify(model, nameless, nameless, blobs(50, 5), vouched="seen by Ann", progress=False)
    assert any("no one wrote it down" in check and "seen by Ann" in check for check in c.checks)
    vouched = nameless.with_provenance(nameless.provenance.vouched("seen by Ann"))
    again = pt.certify(model, vouched, vouched, blobs(50, 5), progress=False)
    assert any("seen by Ann" in check for check in again.checks)


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def test_norm_layers_that_can_still_learn_are_a_hole():
    model = normed()
    prior = pt.isotropic(model, blocks=[nn.Linear])
    with pytest.raises(UnfrozenState, match=r"1\.weight"):
        pt.certify(model, prior, prior, blobs(50, 6), progress=False)


def test_norm_statistics_that_the_data_moved_are_a_hole():
    model = normed()
    model[1].requires_grad_(False)
    prior = pt.isotropic(model, blocks=[nn.Linear])
    data = blobs(60, 6)
    assert pt.certify(model, prior, prior, data, progress=False).bound > 0
    # Nothing is held out: a first epoch that made things worse would be taken back, statistics and all.
    pt.train(model, data, prior, epochs=1, validation=None, progress=False)
    with pytest.raises(UnfrozenState, match="norm statistics"):
        pt.certify(model, prior, prior, data, progress=False)


def test_frozen_norm_layers_are_fine():
    model = normed()
    model[1].requires_grad_(False).eval()
    prior = pt.isotropic(model, blocks=[nn.Linear])
    data = blobs(60, 6)
    pt.train(model, data, prior, epochs=1, progress=False)
    assert pt.certify(model, prior, prior, data, progress=False).bound <= 1


def test_a_prior_chosen_by_the_data_pays_for_the_choice(learned):
    model, prior = learned
    data, other = blobs(80, 7), blobs(80, 70)
    cold = prior.tempered(0.5)

    def certified(choice, **options):
        chosen = prior.with_provenance(prior.provenance.chose("the strength", **choice))
        dice = torch.Generator().manual_seed(0)
        return pt.certify(model, cold, chosen, data, progress=False, generator=dice, **options)

    free = certified({"options": 5, "by": Provenance.of(other)})
    paid = certified({"options": 5, "by": Provenance.of((data[0][3:5].half(), data[1][3:5]))})
    assert (free.payments, paid.payments) == ((), (("the strength", 5),))
    assert paid.gibbs == free.gibbs
    assert paid.upper == klinv(paid.gibbs, math.log(5 / paid.delta_draws) / paid.replicates) > free.upper
    assert paid.bound == maurer(paid.upper, paid.kl + math.log(5), paid.n, paid.delta) > free.bound
    assert paid.holdout.bound > free.holdout.bound
    unknown = certified({"options": 5, "by": Provenance.unknown("lost")})
    assert unknown.payments == paid.payments
    with pytest.raises(UndeclaredChoice, match="grid=K"):
        certified({"options": None, "by": Provenance.of(data)})
    assert certified({"options": None, "by": Provenance.of(data)}, grid=7).grid == 7
    assert certified({"options": 5, "by": Provenance.of(data)}, grid=7).grid == 35


def test_an_infinite_divergence_is_no_certificate(learned):
    model, prior = learned
    far = replace(prior, mean={name: m + math.inf for name, m in prior.mean.items()})
    with pytest.raises(InfiniteDivergence, match="block"):
        pt.certify(model, far, prior, blobs(50, 8), progress=False)


def test_records_are_read_back_and_tampering_is_caught(learned, tmp_path):
    model, prior = learned
    c = pt.certify(model, prior, prior, blobs(60, 10), progress=False)
    c.save(tmp_path / "c.json")
    assert Certificate.from_json((tmp_path / "c.json").read_text()) == c
    for key, value in {"bound": c.bound / 2, "kl": -1.0, "n": 0, "confidence": 0.99, "replicates": "many"}.items():
        raw = json.loads(c.to_json()) | {key: value}
        with pytest.raises(BadAudit):
            Certificate.from_json(json.dumps(raw))
    for text in ("{}", "[1]", "nonsense", json.dumps({"posterity_certificate": 99})):
        with pytest.raises(BadAudit):
            Certificate.from_json(text)
    assert "hold-out" in str(c)
    assert f"{c.bound:.4f}" in str(c)


def test_optimising_tightens_the_certificate():
    model = small()
    data = blobs(600, 11)
    prior = pt.isotropic(model, 1.0, mean="model", vouched="initialised at random")
    generator = torch.Generator().manual_seed(0)
    before = pt.certify(model, prior, prior, data, progress=False, generator=generator)
    better = pt.pacbayes.optimise_posterior(
        model, prior, prior, data, epochs=40, lr=0.02, generator=generator, progress=False
    )
    after = pt.certify(model, better, prior, data, progress=False, generator=generator)
    assert after.bound < 0.6 * before.bound
    assert after.kl > 1


def test_optimise_tells_the_divergence_that_the_gaussians_have():
    from posterity.pacbayes.optimise import FreeBlock

    model = small().double()
    data = blobs(60, 12)
    data = (data[0].double(), data[1])
    curvature = pt.estimate(model, data, progress=False)
    prior = pt.update(model, curvature, pt.isotropic(model, 2.0, mean="model"))
    posterior = pt.update(model, curvature, pt.isotropic(model, 1.0)).tempered(0.3)
    expected = posterior.kl_by_block(prior)
    for name in prior.blocks:
        free = FreeBlock(posterior, prior, name, next(model.parameters()))
        assert float(free.kl().detach()) == pytest.approx(float(expected[name]), rel=1e-9)
        dense = free.precision().dense()
        assert torch.allclose(dense, posterior.precision[name].dense(), rtol=1e-6, atol=1e-8)


def test_a_split_prior_certifies_with_data_it_has_not_seen():
    model = small()
    data = blobs(800, 13)
    generator = torch.Generator().manual_seed(0)
    refined = pt.split_prior(model, data, generator=generator, progress=False, training={"epochs": 60, "lr": 0.02})
    c = refined.certify(generator=generator, progress=False)
    assert c.n == 400
    assert c.kl == 0
    assert c.bound < 0.15
    optimised = refined.certify(epochs=3, generator=generator, progress=False)
    assert optimised.kl > 0
    with pytest.raises(Overlap):
        pt.certify(model, refined.prior, refined.prior, data, progress=False)


def test_few_examples_certify_the_best_of_some_draws(learned):
    model, prior = learned
    data = blobs(15, 14)
    chosen = pt.pacbayes.sample_then_evaluate(model, prior, data, draws=20, generator=torch.Generator().manual_seed(0))
    c = chosen.certificate
    assert c.bound == clopper_pearson(c.errors, 15, (1 - 0.95) / 20)
    assert c.predictor == "the network that was drawn and kept"
    assert c.bound == c.recomputed()
    assert Certificate.from_json(c.to_json()) == c
    assert set(chosen.weights) == set(prior.blocks)


def test_recursion_uses_every_chunk_and_ends_below_one():
    model = small()
    data = blobs(1200, 15)
    prior = pt.isotropic(model, 1.0, mean="model", vouched="initialised at random")
    generator = torch.Generator().manual_seed(0)
    found = pt.pacbayes.recursive_certificate(
        model, prior, data, chunks=3, epochs=40, generator=generator, progress=False
    )
    steps = found.certificate.steps
    assert [s.n for s in steps] == [1200, 900, 600]
    assert steps[-1].bound == found.certificate.bound < 0.5
    assert found.certificate.gibbs < found.certificate.bound
    with pytest.raises(pt.PosterityError):
        pt.pacbayes.recursive_certificate(model, prior, blobs(3, 1), chunks=5, progress=False)


def test_in_recursion_no_prior_has_seen_what_certifies_its_step(monkeypatch):
    learned_from, price, plain = [], [], Descent.run

    def watched(self, model, blocks, free, data, *rest):
        learned_from.append({tuple(row.tolist()) for row in data[0]})
        price.append((self.certifying, self.price))
        return plain(self, model, blocks, free, data, *rest)

    monkeypatch.setattr(Descent, "run", watched)
    model, data = small(), blobs(160, 15)
    prior = pt.isotropic(model, 1.0, mean="model", vouched="initialised at random")
    found = pt.pacbayes.recursive_certificate(
        model, prior, data, chunks=3, epochs=1, updates=1, passes=1, progress=False
    )
    assert [len(rows) for rows in learned_from] == [40, 80, 160]
    assert price == [(160, 0.25), (120, 0.5), (80, 1.0)]
    every = {tuple(row.tolist()) for row in data[0]}
    for before, step in zip(learned_from, found.certificate.steps[1:], strict=False):
        assert len(every - before) == step.n  # all that certifies the next step is new to its prior


def test_a_posterior_of_independent_weights_stays_one():
    model, data = small(), blobs(60, 15)
    prior = pt.isotropic(model, 1.0, mean="model", vouched="initialised at random")
    found = pt.pacbayes.optimise_posterior(model, prior, prior, data, epochs=2, progress=False)
    for name, matrix in found.precision.items():
        assert isinstance(matrix, DiagonalMatrix)
        assert not torch.allclose(matrix.values, torch.ones_like(matrix.values))
        assert matrix.shape == prior.precision[name].shape


@pytest.mark.parametrize("bad", [{"confidence": 1.0}, {"grid": 0}, {"passes": 0}])
def test_nonsense_is_refused(learned, bad):
    model, prior = learned
    with pytest.raises(ValueError, match="not"):
        pt.certify(model, prior, prior, blobs(20, 16), progress=False, **bad)


def test_data_that_changes_between_readings_is_no_ground_for_a_certificate(learned):
    model, prior = learned

    class Shrinking:
        """Half as much at every reading, as a worker's share would be."""

        def __init__(self) -> None:
            self.readings = 0

        def __iter__(self):
            self.readings += 1
            x, y = blobs(80 // self.readings, 17)
            return iter([(x, y)])

    with pytest.raises(pt.errors.BadData, match="not the same when read again"):
        pt.certify(model, prior, prior, Shrinking(), progress=False)
