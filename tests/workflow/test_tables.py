"""Tables: models of the inputs stand beside the network, and everything that a fit does goes on with them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import NotStorable, WrongChoice
from posterity.predictive.beside_network import InputModelPredictor
from posterity.tables import LinearClasses, LinearNumbers, Process
from posterity.workflow import Fit, learn
from posterity.workflow.file import load
from posterity.workflow.plan import Facts, choose_plan
from posterity.workflow.recipe import InputModels as Sizes
from posterity.workflow.recipe import Limits, Recipe

pytest.importorskip("sklearn", reason="scikit-learn is not installed (posterity[scikit-learn])")
CLASSES, NUMBERS = pt.Categorical(), pt.GaussianNoise()


def table(classes: int, n: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=draw)
    y = (2 * x[:, 0]).sin() + 0.3 * x[:, 1] + 0.2 * torch.randn(n, generator=draw)
    return (x, torch.bucketize(y, torch.tensor([-0.3, 0.4]))) if classes else (x, y[:, None])


def network(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))


def fitted(classes: int, data: tuple[torch.Tensor, torch.Tensor] | None = None, **options) -> Fit:
    options = {"candidates": "all", "progress": False} | options
    seeded = torch.Generator().manual_seed(0)
    likelihood = CLASSES if classes else NUMBERS
    return learn(network(classes or 1), data or table(classes), None, likelihood, generator=seeded, **options)


def nll(fit: Fit, x: torch.Tensor, y: torch.Tensor) -> float:
    found = fit.predict(x)
    if y.dtype == torch.int64:
        return -float(found.probs.gather(1, y[:, None]).log().mean())
    return float(0.5 * ((y - found.mean).square() / found.variance + (2 * torch.pi * found.variance).log()).mean())


def parts(fit: Fit) -> dict[str, tuple[float, InputModelPredictor]]:
    """Models of the inputs in a fit's stack, by the names of their classes; a forest and boosted trees of classes share one."""
    found = {}
    for weight, part in fit.predictor.parts:
        if isinstance(part, InputModelPredictor):
            name = type(part.model).__name__
            found[name] = weight + found.get(name, (0.0, part))[0], part
    return found


@pytest.fixture(scope="module", params=[0, 3], ids=["numbers", "classes"])
def fit(request) -> Fit:
    return fitted(request.param)


def classes_of(fit: Fit) -> int:
    return 0 if isinstance(fit.likelihood, pt.GaussianNoise) else 3


def test_a_small_table_leaves_the_network_out_and_says_so(fit):
    assert fit.plan.ways[0] == "network aside"
    assert "linear on the inputs" in fit.plan.ways
    assert "does not predict" in repr(fit)
    assert set(fit.posterior.blocks) == {"0", "2"}
    assert sum(weight for weight, _ in parts(fit).values()) == pytest.approx(1)


def test_only_who_asks_gets_other_models_than_the_network():
    assert not any("inputs" in way for way in fitted(3, candidates="network").plan.ways)
    with pytest.raises(WrongChoice, match="candidates"):
        fitted(3, candidates="some")


def test_inputs_that_are_no_rows_have_no_models_of_their_own():
    x, y = torch.randn(30, 1, 2, 2), torch.arange(30) % 3
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    found = learn(model, (x, y), None, CLASSES, candidates="all", progress=False)
    assert found.plan.ways == ("networks from scratch",)


def facts(**changes) -> Facts:
    return Facts(
        "learn", **({"examples": 100, "outputs": 3, "regression": False, "weights": 50, "inputs": Sizes()} | changes)
    )


def test_the_plan_leaves_out_what_is_not_worth_its_price():
    assert choose_plan(facts()).ways[0] == "network aside"
    assert choose_plan(facts(examples=1000)).ways[0] == "networks from scratch"
    assert choose_plan(facts(examples=1000, regression=True, outputs=1)).ways[0] == "small networks"
    many = choose_plan(facts(examples=4000)).ways
    assert "Gaussian process on the inputs" not in many
    assert "forest on the inputs" in many
    assert not any("trees" in way or "forest" in way for way in choose_plan(facts(examples=20_000)).ways)
    assert "boosted trees on the inputs" not in choose_plan(facts(outputs=10)).ways
    assert "boosted trees on the inputs" not in choose_plan(facts(outputs=1, regression=True)).ways
    without = choose_plan(facts(trees=False))
    assert not any("forest" in way for way in without.ways)
    assert "scikit-learn" in str(without)
    assert choose_plan(facts(trained_as_asked=True)).ways == ("one network",)
    after = choose_plan(facts(prior="learned"))
    assert after.ways[0] == "exact around the prior"
    assert "linear on the inputs" in after.ways
    assert choose_plan(facts(prior="learned", regression=True, outputs=1)).ways == ("exact around the prior",)
    assert choose_plan(facts(can_leave_out=False)).ways == ("networks from scratch",)


def test_a_network_that_predicts_is_stacked_with_the_models(monkeypatch):
    recipe = Recipe(inputs=Sizes(network=10), limits=Limits())
    for classes in (0, 3):
        found = fitted(classes, recipe=recipe)
        assert found.plan.ways[0] == ("networks from scratch" if classes else "small networks")
        assert sum(weight for weight, _ in parts(found).values()) <= 1 + 1e-9
        assert bool(found.predict(table(classes)[0]).mean.isfinite().all())


@pytest.mark.parametrize("classes", [0, 2])
def test_a_linear_truth_is_predicted_as_by_the_linear_model(classes):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=draw)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0]) + 0.5 * torch.randn(400, generator=draw)
    y = (y > 0).long() if classes else y[:, None]
    found = fitted(classes, (x[:100], y[:100]))
    (_, part) = parts(found)[LinearClasses.__name__ if classes else LinearNumbers.__name__]
    [said] = part.moments(None, pt_batch(x[100:], y[100:]))
    if classes:
        alone = -float(said.mean.gather(1, y[100:, None]).mean())
    else:
        spread = said.noise.add(said.covariance[:, 0]).sqrt()
        alone = -float(torch.distributions.Normal(said.mean, spread).log_prob(y[100:]).mean())
    assert nll(found, x[100:], y[100:]) == pytest.approx(alone, abs=0.06)


def pt_batch(x, y):
    from posterity.data import Batch

    return Batch((x,), {}, y)


@pytest.mark.parametrize("classes", [0, 3])
def test_the_stack_is_not_behind_the_network_alone(classes):
    new = table(classes, 500, seed=1)
    whole, alone = (nll(fitted(classes, candidates=kind), *new) for kind in ("all", "network"))
    assert whole < alone + 0.02


def test_it_predicts_the_same_from_its_file(fit, tmp_path: Path):
    x, _ = table(classes_of(fit), 20, seed=2)
    fit.save(tmp_path / "a.fit")
    again = load(tmp_path / "a.fit", network(classes_of(fit) or 1))
    one, other = fit.predict(x), again.predict(x)
    for name in ("mean", "epistemic", "aleatoric", "unknown"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert again.plan == fit.plan


def test_a_process_does_not_leave_its_examples_out_of_a_file(fit, tmp_path: Path):
    assert any("Process" in name for name in parts(fit))
    with pytest.raises(NotStorable, match="candidates"):
        fit.save(tmp_path / "a.fit", examples=False)


def test_predictions_are_the_same_from_many_threads(fit):
    x, _ = table(classes_of(fit), 20, seed=2)
    expected = fit.predict(x).mean
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: fit.predict(x).mean, range(8)):
            assert torch.equal(found, expected)


def test_it_is_exported_with_all_its_models(fit):
    x, _ = table(classes_of(fit), 20, seed=2)
    module, expected = fit.module(), fit.predict(x)
    found = module(x)
    torch.testing.assert_close(found[-1], expected.unknown, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[0], expected.mean, rtol=1e-5, atol=1e-6)
    if not classes_of(fit):
        torch.testing.assert_close(found[1], expected.variance, rtol=1e-5, atol=1e-6)
    size = torch.export.Dim("n", min=2)
    program = torch.export.export(module, (x,), dynamic_shapes=(({0: size},),))
    torch.testing.assert_close(program.module()(x[:7])[0], found[0][:7], rtol=1e-6, atol=1e-7)


def test_noise_and_what_examples_would_settle_add_up():
    found = fitted(0)
    x, _ = table(0, 30, seed=3)
    near, far = found.predict(x), found.predict(10 * x)
    torch.testing.assert_close(near.variance, near.epistemic + near.aleatoric)
    assert float(far.epistemic.mean()) > 2 * float(near.epistemic.mean())
    assert bool((near.aleatoric > 0).all())
    assert far.unknown.mean() > near.unknown.mean()


@pytest.mark.parametrize("classes", [0, 3])
def test_after_a_prior_the_posterior_around_it_is_one_of_the_candidates(classes):
    source = fitted(classes, table(classes, 200, seed=5))
    few = table(classes, 24, seed=6)
    seeded = torch.Generator().manual_seed(0)
    likelihood = CLASSES if classes else NUMBERS
    found = learn(
        network(classes or 1), few, source.posterior, likelihood, generator=seeded, candidates="all", progress=False
    )
    assert found.plan.ways[0] == "exact around the prior"
    assert ("linear on the inputs" in found.plan.ways) == bool(classes)
    new = table(classes, 300, seed=7)
    assert nll(found, *new) < nll(source, *new) + 1.0


def test_groups_are_left_out_together():
    x, y = table(0, 30)
    x, y = x.repeat(4, 1) + 0.2 * torch.randn(120, 4, generator=torch.Generator().manual_seed(3)), y.repeat(4, 1)
    y = torch.randn(30, 1, generator=torch.Generator().manual_seed(4)).repeat(4, 1)  # nothing to be learned but copies
    together = fitted(0, (x, y), groups=torch.arange(120) % 30)
    apart = fitted(0, (x, y))
    new, truth = torch.randn(300, 4), torch.randn(300, 1)
    assert nll(together, new, truth) < nll(apart, new, truth) - 0.1
    assert isinstance(parts(apart).get(Process.__name__, (0, None))[0], float)
