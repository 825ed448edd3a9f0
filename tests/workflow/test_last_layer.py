"""The exact posterior of a last layer: in function space and in weight space the same, and what brute force says."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.algebra import DenseMatrix
from posterity.blocks import Replica
from posterity.data.batches import Batch
from posterity.data.leave_out import LeaveOut
from posterity.kernel import Calibration, LeaveOneOut, centred
from posterity.predictive.linearised import StructuredGaussian
from posterity.workflow.recipe import LastLayers, Recipe
from posterity.workflow.ways import last_layer

IN_WEIGHTS = Recipe(last_layer=LastLayers(in_function_space=0))

SEED = 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def data(n: int = 30, seed: int = 1):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)).double()
    return x, (2 * x[:, :3] + 0.5 * torch.randn(n, 3, generator=torch.Generator().manual_seed(seed + 1))).argmax(1)


def features(model: nn.Module, x):
    with torch.no_grad():
        return torch.cat([model[:2](x), x.new_ones(len(x), 1)], 1)


def refitted(phi, y, precision, steps: int = 30, start=None):
    """Softmax regression by Newton's method on dense matrices, and the covariance of its weights."""
    c, d = 3, phi.shape[1]
    w = phi.new_zeros(c, d) if start is None else start
    onehot, eye = nn.functional.one_hot(y, c), torch.eye(c, dtype=phi.dtype)

    def hessian(p):
        h = p[:, :, None] * eye - p[:, :, None] * p[:, None, :]
        return torch.einsum("ncd,ni,nj->cidj", h, phi, phi).reshape(c * d, c * d) + precision * torch.eye(c * d)

    for _ in range(steps):
        p = (phi @ w.T).softmax(-1)
        slope = (p - onehot).T @ phi + precision * w
        w = w - torch.linalg.solve(hessian(p), slope.flatten()).view(c, d)
    return w, torch.linalg.inv(hessian((phi @ w.T).softmax(-1)))


@pytest.mark.parametrize("space", ["function", "weights"])
def test_the_posterior_of_a_last_layer_is_exact(space):
    recipe = IN_WEIGHTS if space == "weights" else None
    # Twenty examples make a kernel that is smaller than the layer's 21 weights.
    model, (x, y), (new, _) = network(), data(20), data(5, seed=9)
    before = copy.deepcopy(model.state_dict())
    fit = pt.posterior(model, (x, y), blocks=["2"], precision=0.5, progress=False, recipe=recipe)
    weights, covariance = refitted(features(model, x), y, 0.5)
    torch.testing.assert_close(fit.posterior.mean["2"], weights, rtol=0, atol=1e-9)
    assert isinstance(fit.curvature["2"], DenseMatrix)
    torch.testing.assert_close(torch.linalg.inv(fit.posterior.precision["2"].dense()), covariance, rtol=0, atol=1e-8)
    phi = features(model, new)
    wanted = torch.einsum("mi,cidj,mj->mcd", phi, covariance.view(3, 7, 3, 7), phi)
    member = fit.choice.best
    mean, found = member.posterior.moments(fit.predictor.jacobian(Replica(model), [Batch.of((new, new), 0)]))
    torch.testing.assert_close(mean, phi @ weights.T, rtol=0, atol=1e-9)
    # What is common to all classes has the prior's variance, and is rounded more; no probability sees it.
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(centred(mean, found)[1], centred(mean, wanted)[1], rtol=0, atol=1e-8)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert fit.predict(new).probs.shape == (5, 3)


def test_function_space_and_weight_space_choose_the_same():
    model, task = network(), data(18)
    one = pt.posterior(model, task, blocks=["2"], progress=False)
    two = pt.posterior(model, task, blocks=["2"], progress=False, recipe=IN_WEIGHTS)
    assert one.choice.best.posterior.strength == two.choice.best.posterior.strength
    assert one.choice.best.calibration == two.choice.best.calibration
    assert one.choice.best.nll == pytest.approx(two.choice.best.nll, abs=1e-8)
    assert one.prior.provenance.choices[0].options == one.choice.strengths == 49


def test_few_examples_are_left_out_by_refitting_and_more_in_closed_form():
    model, (x, y) = network(), data(40)
    fit = pt.posterior(model, (x, y), blocks=["2"], progress=False)
    posterior, width = fit.choice.best.posterior, fit.choice.best.calibration
    phi, folds, total = features(model, x), LeaveOut.of(y).folds, 0.0
    for fold in folds.unique():
        kept, out = folds != fold, folds == fold
        weights, covariance = refitted(phi[kept], y[kept], posterior.strength.head, 12, fit.posterior.mean["2"])
        spread = torch.einsum("mi,cidj,mj->mcd", phi[out], covariance.view(3, 7, 3, 7), phi[out])
        left_out = LeaveOneOut(phi[out] @ weights.T, spread)
        total += float(out.sum()) / len(x) * left_out.nll(pt.Categorical(), y[out], width)
    assert fit.choice.best.nll == pytest.approx(total, abs=1e-6)
    never = Recipe(last_layer=LastLayers(refitted=0))
    closed = pt.posterior(model, (x, y), blocks=["2"], precision=1.0, progress=False, recipe=never)
    single = closed.choice.best.posterior.refitted(torch.arange(40)).nll(pt.Categorical(), y, Calibration(0.0, 1.0))
    assert closed.choice.best.nll == pytest.approx(single, abs=0.005)


def test_a_random_part_of_the_examples_chooses_nearly_as_all_do():
    model, task = network(), data(400)
    every = pt.posterior(model, task, blocks=["2"], progress=False, recipe=IN_WEIGHTS)
    part = Recipe(last_layer=LastLayers(in_function_space=0, some=200))
    some = pt.posterior(model, task, blocks=["2"], progress=False, recipe=part)
    assert some.choice.best.nll == pytest.approx(every.choice.best.nll, abs=0.1)
    assert some.choice.best.nll != every.choice.best.nll


def test_validation_data_chooses_where_it_is_given_and_is_told():
    model, held = network(), data(50, seed=21)
    fit = pt.posterior(model, data(), blocks=["2"], validation=held, progress=False)
    assert fit.choice.criterion == "validation"
    assert fit.choice.best.nll == pytest.approx(
        float(-fit.predict(held[0]).probs.log()[torch.arange(50), held[1]].mean()), abs=1e-5
    )


def test_regression_learns_its_noise_in_closed_form():
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        y = model[:2](x).sum(1, keepdim=True) + 0.1 * torch.randn(60, 1, generator=torch.Generator().manual_seed(2))
    fit = pt.posterior(model, (x, y), pt.GaussianNoise(), blocks=["2"], progress=False)
    assert 0.06 < fit.likelihood.value**-0.5 < 0.15
    assert float((fit.predict(x).mean - y).square().mean()) < 0.02


def test_a_network_that_goes_on_after_the_layer_keeps_the_structured_posterior(caplog):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return 2 * self.head(x)

    x, y = data()
    with caplog.at_level("INFO", logger="posterity"):
        model = Scaled().double()
        model.head.weight.data.mul_(5)  # as no network starts
        fit = pt.posterior(model, (x, y), blocks=["head"], progress=False)
    assert isinstance(fit.predictor, StructuredGaussian)
    assert "are not those of" in str(fit.plan)


def test_a_wide_layer_has_a_file_of_frame_and_values(tmp_path):
    model, (x, y), wide = network(), data(5), Recipe(last_layer=LastLayers(dense=4))
    fit = pt.posterior(model, (x, y), blocks=["2"], precision=1.0, progress=False, recipe=wide)
    dense = pt.estimate(
        model_at(model, fit), (x, y), pt.curvature.Dense(pt.curvature.ExactLabels()), blocks=["2"], progress=False
    )
    assert float(fit.curvature["2"].trace()) == pytest.approx(float(dense["2"].trace()), rel=1e-9)
    fit.posterior.save(tmp_path / "head.safetensors")
    assert pt.load(tmp_path / "head.safetensors").blocks == ("2",)


def model_at(model: nn.Module, fit: pt.Fit) -> nn.Module:
    other = copy.deepcopy(model)
    fit.posterior.write_to(other)
    return other


def test_the_strength_does_not_run_away_where_all_that_is_left_out_is_told_apart():
    """Left-out examples then ask for an ever weaker prior; what is believed of strengths beforehand ends it."""
    model = nn.Sequential(OrderedDict(fc=nn.Linear(4, 3)))
    y = torch.arange(30) % 3
    x = 4 * torch.eye(4)[y] + 0.1 * torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    fit = pt.posterior(model, (x, y), blocks=["fc"], progress=False)
    chosen = fit.choice.best.posterior.strength.head
    steps = 2 * math.log10(chosen / (float(x.square().sum(1).mean() + 1) / 30))
    assert -last_layer.AROUND < steps < -1
    assert float(fit.predict(x).unknown.mean()) < float(fit.predict(-x).unknown.mean())


def test_a_few_directions_become_a_whole_basis():
    draw = torch.Generator().manual_seed(0)
    random = torch.linalg.qr(torch.randn(30, 5, generator=draw, dtype=torch.float64)).Q
    axes = torch.eye(30, dtype=torch.float64)[:, [0, 3, 1]]
    for span in (random, axes):
        basis = last_layer._completed(span)
        torch.testing.assert_close(basis.mT @ basis, torch.eye(30, dtype=torch.float64), rtol=0, atol=1e-13)
        torch.testing.assert_close(
            (basis[:, : span.shape[1]].mT @ span).abs(),
            torch.eye(span.shape[1], dtype=torch.float64),
            rtol=0,
            atol=1e-13,
        )
