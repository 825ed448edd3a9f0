"""Classes from scratch: six networks, one of which saw everything, averaged as softly as left-out examples say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import posterity as pt
from posterity.blocks import find_blocks
from posterity.data.batches import Batch
from posterity.data.leave_out import LeaveOut
from posterity.kernel import outputs_at
from posterity.predictive.exact import AveragedNetworks
from posterity.predictive.predictor import Stack
from posterity.workflow.plan import choose_plan, facts_of
from posterity.workflow.problem import Problem
from posterity.workflow.recipe import FromScratch, Limits, Recipe
from posterity.workflow.ways import networks
from posterity.workflow.ways.candidate import Options

QUICK = Recipe(from_scratch=FromScratch(steps=60))
"""Enough for clouds of points."""


def clouds(n: int = 90, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes that overlap."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return 1.2 * torch.eye(4)[y] + torch.randn(n, 4, generator=generator), y


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))


def fitted(model: nn.Module | None = None, data: Any = None, **options: Any) -> pt.Fit:
    generator = torch.Generator().manual_seed(0)
    options = {"recipe": QUICK, "progress": False} | options
    return pt.learn(model or network(), data or clouds(), generator=generator, **options)


def averaged(data: tuple[Tensor, Tensor], steps: int = 20) -> tuple[AveragedNetworks, Tensor]:
    problem = Problem.of(network(), data, pt.Categorical())
    training = replace(FromScratch().training(100), steps=steps)
    return networks.averaged(problem, pt.isotropic(problem.model), training, Options(progress=False))


def networks_in(fit: pt.Fit) -> AveragedNetworks | None:
    if not isinstance(fit.predictor, Stack):
        return None
    found = fit.predictor.parts[-1][1]
    return found if isinstance(found, AveragedNetworks) else None


def outputs(model: nn.Module, weights: Any, x: Tensor) -> Tensor:
    return outputs_at(model, find_blocks(model), weights, Batch((x,), {}, torch.zeros(len(x)), 0)).detach()


def test_a_network_knows_nothing_of_what_it_left_out() -> None:
    x, y = clouds()
    out = LeaveOut.of(y).folds == 2
    before, after = (averaged((inputs, y))[0].networks for inputs in (x, torch.where(out[:, None], x + 5, x)))
    for number, ((_, old), (_, new)) in enumerate(zip(before, after, strict=True)):
        same = all(torch.equal(old[name], new[name]) for name in old)
        assert same == (number == 3)  # the first saw everything; the fourth left fold 2 out


def test_left_out_examples_score_the_networks_that_did_not_see_them() -> None:
    x, y = clouds()
    (found, probs), model = averaged((x, y)), network()
    folds = LeaveOut.of(y).folds
    logits = torch.empty(len(x), 3)
    for fold, (_, weights) in enumerate(found.networks[1:]):
        out = folds == fold
        logits[out] = outputs(model, weights, x[out])
    temperatures = torch.linspace(0.2, 5, 960)
    least = min(float(nn.functional.cross_entropy(logits / t, y)) for t in temperatures)
    assert least - 1e-6 <= float(-probs.log().mean()) <= least + 0.01


def test_predictions_are_the_average_of_the_networks() -> None:
    fit = fitted()
    found, new = networks_in(fit), clouds(40, seed=1)[0]
    assert found is not None
    t = found.calibration.temperature
    expected = sum(share * (outputs(fit.model, w, new) / t).softmax(-1) for share, w in found.networks)
    torch.testing.assert_close(fit.predict(new).probs, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(fit.model(new), outputs(fit.model, found.networks[0][1], new))
    assert sum(share for share, _ in found.networks) == pytest.approx(1)


def test_unknown_inputs_are_told_by_the_posterior() -> None:
    fit = fitted()
    near, far = fit.predict(clouds(60, seed=1)[0]).unknown, fit.predict(50 * torch.randn(60, 4)).unknown
    assert near is not None
    assert far is not None
    assert pt.metrics.ood_auroc(near, far) > 0.9


def test_they_are_better_than_one_network_trained_for_as_long() -> None:
    x, y = clouds(60)
    test = clouds(2000, seed=1)
    fit = fitted(data=(x, y))
    alone = network()
    optimiser = torch.optim.Adam(alone.parameters(), 3e-3)
    for _ in range(400):
        optimiser.zero_grad()
        nn.functional.cross_entropy(alone(x), y).backward()
        optimiser.step()
    plain = pt.metrics.score(alone(test[0]).softmax(-1).detach(), test[1]).nll
    assert pt.metrics.score(fit.predict(test[0]).probs, test[1]).nll < plain - 0.02


def test_a_saved_fit_predicts_the_same(tmp_path: Path) -> None:
    fit = fitted()
    fit.save(tmp_path / "a.fit")
    opened = pt.load(tmp_path / "a.fit", network())
    new = clouds(40, seed=1)[0]
    for name in ("probs", "unknown", "epistemic"):
        generators = (torch.Generator().manual_seed(1) for _ in range(2))
        first, second = (
            getattr(f.predict(new, generator=g), name) for f, g in zip((fit, opened), generators, strict=True)
        )
        torch.testing.assert_close(first, second, rtol=0, atol=0)


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Every reading is another."""

    def __init__(self) -> None:
        self.x, self.y = clouds()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i] + 0.1 * torch.randn(4), self.y[i]


def trained() -> nn.Module:
    model = network()
    with torch.no_grad():
        model[0].weight.mul_(3)
    return model


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (trained, {}),
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), {}),
        (network, {"validation": 0.2}),
        (network, {"scales": "bayes"}),
        (network, {"data": Augmented()}),
    ],
    ids=["trained elsewhere", "norm layers", "validation", "bayes", "augmented"],
)
def test_who_is_trained_alone(model: Any, options: dict[str, Any]) -> None:
    fit = fitted(model(), **options)
    assert fit.plan.ways == ("one network",)
    assert networks_in(fit) is None


def ways_of(model: nn.Module, n: int) -> tuple[str, ...]:
    return choose_plan(facts_of("learn", Problem.of(model, clouds(n), pt.Categorical()), Options())).ways


def test_a_large_network_is_trained_alone() -> None:
    large = nn.Sequential(nn.Linear(4, 150_000), nn.ReLU(), nn.Linear(150_000, 3))
    assert ways_of(large, 30) == ("one network",)


def test_how_many_examples_they_take() -> None:
    small, large = network(), nn.Sequential(nn.Linear(4, 5000), nn.ReLU(), nn.Linear(5000, 3))

    several, alone = ("networks from scratch",), ("one network",)
    assert [ways_of(large, n) for n in (5000, 5001)] == [several, alone]
    assert [ways_of(small, n) for n in (50_000, 50_001)] == [several, alone]


def test_inputs_that_would_fill_the_memory_are_left_to_one_network() -> None:
    read = [Problem.of(network(), clouds(n), pt.Categorical(), limits=Limits(numbers=300)).examples for n in (75, 76)]
    assert [found is not None for found in read] == [True, False]


def test_a_network_that_was_reset_is_new() -> None:
    model = network()
    for layer in (model[0], model[2]):
        layer.reset_parameters()  # type: ignore[operator]
    assert networks_in(fitted(model)) is not None


def test_groups_of_another_length_are_named() -> None:
    with pytest.raises(pt.errors.PosterityError, match="group"):
        fitted(data=clouds(1200), groups=torch.arange(7))


def test_the_past_is_kept() -> None:
    data = clouds(200)
    fit = fitted(data=data)
    assert fit.posterior.provenance.count == 200
    with pytest.raises(pt.errors.PosterityError, match="learned from"):
        pt.certify(fit.model, fit.posterior, fit.posterior, data, progress=False)
    assert 0 < fit.certify(data, progress=False).bound <= 1


def test_training_that_diverges_is_a_stated_reason_for_another_way(caplog: pytest.LogCaptureFixture) -> None:
    fit = fitted(recipe=Recipe(from_scratch=FromScratch(steps=60, peak=1e30)))
    assert fit.plan.ways == ("one network",)
    assert "diverges" in fit.plan.reasons[-1]
    assert "diverges" in repr(fit)
    assert "diverges" in caplog.text
    assert torch.isfinite(fit.predict(clouds(seed=1)[0]).probs).all()


def test_dropout_spares_the_inputs_and_networks_that_have_their_own() -> None:
    training = FromScratch().training(100)

    def hooked(model: nn.Module) -> list[int]:
        networks._drop(model, training, torch.Generator())
        return [i for i, layer in enumerate(model) if layer._forward_pre_hooks]  # type: ignore[arg-type, call-overload]

    assert hooked(network()) == [2]
    assert hooked(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))) == []


def test_the_global_randomness_stays_as_it_was() -> None:
    model, data = network(), clouds()
    torch.manual_seed(3)
    fitted(model, data)
    after = torch.rand(3)
    torch.manual_seed(3)
    torch.testing.assert_close(after, torch.rand(3), rtol=0, atol=0)
