"""Models of a table's inputs: each is what its formula says, and judges itself by examples that it has not seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from posterity.data.leave_out import LeaveOut
from posterity.errors import DamagedFile
from posterity.tables import (
    Process,
    ProcessRecipe,
    TreeClasses,
    TreesRecipe,
    fit_linear,
    fit_process,
    fit_process_classes,
    fit_trees,
    from_plain,
    stacked_numbers,
    to_plain,
)
from posterity.tables.model import log_density
from posterity.tables.process import ProcessKernel, evidence
from posterity.tables.trees import _grown

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed (posterity[scikit-learn])")


def rows(n: int = 40, d: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64)
    return 3 * x + 1, x[:, 0].sin() + 0.5 * x[:, 1] + 0.1 * torch.randn(n, generator=draw, dtype=torch.float64)


def dense_kernel(logs: torch.Tensor, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Number by number, as the docstring has it."""
    lengths, size, slope = logs[:-3].exp(), logs[-3].exp(), logs[-2].exp()
    made = torch.empty(len(x), len(z), dtype=x.dtype)
    for i, a in enumerate(x):
        for j, b in enumerate(z):
            r = 5**0.5 * ((a - b) / lengths).norm()
            made[i, j] = 1 + slope * a @ b / len(a) + size * (1 + r + r**2 / 3) * (-r).exp()
    return made


def test_a_process_is_the_posterior_of_its_dense_covariance():
    x, y = rows()
    new, _ = rows(7, seed=1)
    logs = torch.tensor([0.3, 0.8, 1.1, -0.2, -0.5, -2.0], dtype=torch.float64)
    mean, own, noise = Process.of(x, y, logs).numbers(new)
    centre, spread = x.mean(0), x.std(0, correction=0)
    a, b = (x - centre) / spread, (new - centre) / spread
    targets = (y - y.mean()) / y.std(correction=0)
    covariance = dense_kernel(logs, a, a) + logs[-1].exp() * torch.eye(len(x), dtype=torch.float64)
    cross = dense_kernel(logs, b, a)
    expected = y.mean() + y.std(correction=0) * cross @ torch.linalg.solve(covariance, targets)
    left = dense_kernel(logs, b, b) - cross @ torch.linalg.solve(covariance, cross.mT)
    torch.testing.assert_close(mean, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(own, y.var(correction=0) * left.diagonal(), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(noise, (y.var(correction=0) * logs[-1].exp()).expand(7), rtol=1e-9, atol=0)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_slope_of_the_evidence_is_that_of_differences(outputs):
    x, _ = rows(15)
    targets = torch.randn(15, outputs, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    logs = torch.tensor([0.3, 0.8, 1.1, -0.2, -0.5, -2.0], dtype=torch.float64)
    _, slope = evidence(ProcessKernel(logs), x, targets)
    step = 1e-5 * torch.eye(len(logs), dtype=torch.float64)
    found = [
        (evidence(ProcessKernel(logs + e), x, targets)[0] - evidence(ProcessKernel(logs - e), x, targets)[0]) / 2e-5
        for e in step
    ]
    torch.testing.assert_close(slope, torch.tensor(found, dtype=torch.float64), rtol=1e-5, atol=1e-6)


def test_the_evidence_is_the_density_of_the_targets():
    x, y = rows(12)
    logs = torch.tensor([0.3, 0.8, 1.1, -0.2, -0.5, -2.0], dtype=torch.float64)
    covariance = dense_kernel(logs, x, x) + logs[-1].exp() * torch.eye(12, dtype=torch.float64)
    whole = torch.distributions.MultivariateNormal(torch.zeros(12, dtype=torch.float64), covariance)
    value, _ = evidence(ProcessKernel(logs), x, y[:, None])
    expected = -float(whole.log_prob(y)) - 6 * math.log(2 * math.pi)
    assert value == pytest.approx(expected, rel=1e-9)


def test_a_process_says_of_a_fold_what_one_without_it_says():
    x, y = rows()
    folds = LeaveOut.of(y).folds
    found = fit_process(x, y, folds, ProcessRecipe(widths=(1.0,)))
    kept, out = folds != 2, folds == 2
    # From the same start: the evidence may have more than one summit.
    alone = fit_process(x[kept], y[kept], torch.full((int(kept.sum()),), -1), ProcessRecipe(widths=(1.0,)))
    assert found.moments is not None
    mean, own, noise = alone.model.numbers(x[out])
    assert float((found.moments[0][out] - mean).abs().max()) < 0.1 * float(y.std())
    torch.testing.assert_close(found.moments[1][out].log(), (own + noise).log(), atol=0.5, rtol=0)
    torch.testing.assert_close(found.scores, log_density(y, *found.moments))


def test_no_target_speaks_for_its_own_left_out_score():
    x, y = rows()
    folds = LeaveOut.of(y).folds
    changed = y.clone()
    changed[3] += 5.0
    one, other = (fit_linear(x, t, folds, 0) for t in (y, changed))
    same = (folds == folds[3]).nonzero().flatten()
    # Means of a fold come from the others alone; which strengths count is chosen by all.
    assert float((one.moments[0] - other.moments[0])[same].abs().max()) < 1.0


@pytest.mark.parametrize("kind", ["forest", "boosted"])
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_trees_predict_as_scikit_learn_does(kind, classes):
    from sklearn import ensemble

    x, y = rows(60)
    y = y if not classes else torch.bucketize(y, torch.tensor([0.0, 1.0][: classes - 1], dtype=torch.float64))
    recipe = TreesRecipe()
    goal = "Classifier" if classes else "Regressor"
    if kind == "forest":
        columns = "sqrt" if classes else 1.0
        theirs = getattr(ensemble, f"ExtraTrees{goal}")(
            recipe.forest, min_samples_leaf=recipe.leaf, random_state=3, max_features=columns
        )
    else:
        theirs = getattr(ensemble, f"GradientBoosting{goal}")(
            n_estimators=recipe.boosted, max_depth=recipe.depth, learning_rate=recipe.rate, subsample=recipe.share,
            max_features=0.5, random_state=3,
        )  # fmt: skip
    theirs.fit(x.float().numpy(), y.numpy())
    new, _ = rows(25, seed=5)
    found = _grown(kind, x, y, classes, 3, recipe)(new)
    given = new.float().numpy()
    if not classes:
        expected, found = theirs.predict(given), found[:, 0]
    else:
        expected = theirs.predict_proba(given)
        found = found if kind == "forest" else found.softmax(1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-8)


def test_trees_of_a_fold_have_not_seen_it():
    x, y = rows(60)
    folds = LeaveOut.of(y).folds
    out = (folds == 0).nonzero().flatten()
    changed = y.index_put((out,), y[out].flip(0))  # the same mean and spread of all targets
    one, other = (fit_trees("forest", x, t, folds, 0).moments for t in (y, changed))
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one[0][out], other[0][out], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(one[0], other[0], rtol=1e-3)


def test_left_out_scores_of_trees_and_processes_are_those_of_new_examples_on_average():
    x, y = rows(400, seed=3)
    folds = LeaveOut.of(y[:150]).folds
    for found in (fit_process(x[:150], y[:150], folds), fit_trees("forest", x[:150], y[:150], folds, 0)):
        mean, own, noise = found.model.numbers(x[150:])
        new = float(log_density(y[150:], mean, own + noise).mean())
        assert float(found.scores.mean()) == pytest.approx(new, abs=0.25)


def test_weights_of_numbers_have_the_greatest_density_of_their_average():
    y = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    means = torch.stack([0.8 * y, torch.zeros_like(y), y.flip(0)])
    variances = torch.tensor([[0.3], [1.0], [0.4]], dtype=torch.float64).expand(3, 50)
    counts = torch.ones(3, dtype=torch.float64)

    def value(w: torch.Tensor) -> float:
        m = w @ means
        v = w @ variances + w @ (means - m).square()
        return float(log_density(y, m, v).sum() + counts @ w.log())

    weights = stacked_numbers(y, means, variances, counts)
    assert float(weights.sum()) == pytest.approx(1)
    draw = torch.Generator().manual_seed(1)
    for _ in range(200):
        other = (weights.log() + 0.1 * torch.randn(3, generator=draw, dtype=torch.float64)).softmax(0)
        assert value(other) <= value(weights) + 1e-3
    assert weights.argmax() == 0
    torch.testing.assert_close(stacked_numbers(y[:0], means[:, :0], variances[:, :0], counts), counts / 3)


@pytest.mark.parametrize("classes", [0, 3])
def test_every_model_is_the_same_after_storing(classes):
    x, y = rows(60)
    if classes:
        y = torch.bucketize(y, torch.tensor([0.0, 1.0], dtype=torch.float64))
    folds = LeaveOut.of(y).folds
    process = fit_process_classes(x, y, folds, classes) if classes else fit_process(x, y, folds)
    new, _ = rows(9, seed=4)
    for found in (
        process,
        fit_linear(x, y, folds, classes),
        *(fit_trees(k, x, y, folds, classes) for k in ("forest", "boosted")),
    ):
        plain, tensors = to_plain(found.model)
        again = from_plain(plain, {name: tensor.clone() for name, tensor in tensors.items()}, x)
        one, other = (m.logits(new) if classes else torch.stack(m.numbers(new)) for m in (found.model, again))
        assert torch.equal(one, other)


def test_nodes_that_point_outside_are_refused():
    x, y = rows(60)
    found = fit_trees("boosted", x, (y > 0).long(), LeaveOut.of((y > 0).long()).folds, 2)
    assert isinstance(found.model, TreeClasses)
    trees = found.model.trees
    for name in ("left", "right", "roots", "feature"):
        wrong = getattr(trees, name).clone()
        wrong[0] = 10**9 if name != "feature" else -1
        plain, tensors = to_plain(replace(found.model, trees=replace(trees, **{name: wrong})))
        with pytest.raises(DamagedFile, match=name):
            from_plain(plain, tensors, x)


def test_classes_that_a_fold_lacks_stay_possible():
    x, y = rows(60)
    labels = (y > 0).long()
    labels[0] = 2
    for kind in ("forest", "boosted"):
        found = fit_trees(kind, x, labels, LeaveOut.of(labels).folds, 3)
        assert bool(found.model.logits(x).isfinite().all())
