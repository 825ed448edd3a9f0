"""A posterior of laplace-torch and ours have the same outputs, there and back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import posterity as pt
from posterity.blocks import Replica
from posterity.data.batches import Batch
from posterity.errors import NotConvertible, TooLarge
from posterity.predictive.linearised import output_moments

laplace = pytest.importorskip("laplace", reason="laplace-torch is not installed (make .venv/.bench)")

SAME = {"rtol": 2e-4, "atol": 2e-5}


def network(kind: str, outputs: int) -> nn.Module:
    torch.manual_seed(1)
    if kind == "convolutional":
        head = nn.Linear(8, outputs)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), head).double()
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def examples(kind: str, task: str, outputs: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(30, *((1, 4, 4) if kind == "convolutional" else (4,)), generator=generator, dtype=torch.float64)
    if task == "regression":
        return x, torch.randn(30, outputs, generator=generator, dtype=torch.float64)
    return x, torch.randint(outputs, (30,), generator=generator)


def fitted(kind: str, task: str, subset: str, structure: str, **options):
    x, y = examples(kind, task, 3)
    la = laplace.Laplace(network(kind, 3), task, subset, structure, prior_precision=0.7, **options)
    la.fit(DataLoader(TensorDataset(x, y), 10))
    return la, x[:6] + 0.3


def moments(fit: pt.Fit, x: Tensor) -> tuple[Tensor, Tensor]:
    return output_moments(Replica(fit.model), fit.posterior, Batch((x,), {}, torch.zeros(len(x))))


FORMS = [
    ("dense", "classification", "all", "kron", {}),
    ("dense", "classification", "all", "diag", {}),
    ("dense", "regression", "all", "kron", {"sigma_noise": 0.4, "temperature": 0.5}),
    ("convolutional", "classification", "all", "kron", {}),
    ("convolutional", "classification", "all", "diag", {}),
    ("dense", "classification", "last_layer", "kron", {}),
    ("dense", "classification", "last_layer", "diag", {}),
    ("convolutional", "classification", "last_layer", "full", {}),
    ("dense", "regression", "last_layer", "full", {"sigma_noise": 0.4}),
]


@pytest.mark.parametrize(("kind", "task", "subset", "structure", "options"), FORMS)
def test_outputs_have_the_mean_and_covariance_of_laplace_torch(kind, task, subset, structure, options):
    la, x = fitted(kind, task, subset, structure, **options)
    expected = la._glm_predictive_distribution(x)
    fit = pt.wrappers.from_laplace(la)
    for found, wanted in zip(moments(fit, x), expected, strict=True):
        torch.testing.assert_close(found, wanted.detach(), **SAME)
    torch.testing.assert_close(fit.posterior.logdet(), la.log_det_posterior_precision.double(), rtol=1e-6, atol=1e-6)
    assert fit.curvature.count == 30
    assert fit.curvature.nll == pytest.approx(-float(la.log_likelihood), rel=1e-9)


@pytest.mark.parametrize(("kind", "task", "subset", "structure", "options"), FORMS)
def test_there_and_back_is_the_same_posterior(kind, task, subset, structure, options):
    la, x = fitted(kind, task, subset, structure, **options)
    back = pt.wrappers.to_laplace(pt.wrappers.from_laplace(la))
    for found, wanted in zip(back._glm_predictive_distribution(x), la._glm_predictive_distribution(x), strict=True):
        torch.testing.assert_close(found.detach(), wanted.detach(), **SAME)
    torch.testing.assert_close(back.log_det_posterior_precision, la.log_det_posterior_precision, rtol=1e-6, atol=1e-6)


def test_a_regression_predicts_the_same_and_a_classifier_nearly():
    la, x = fitted("dense", "regression", "all", "kron", sigma_noise=0.4)
    mean, variance = la(x)
    found = pt.wrappers.from_laplace(la).predict(x)
    torch.testing.assert_close(found.mean, mean.detach().to(found.mean), **SAME)
    torch.testing.assert_close(found.epistemic, variance.detach().diagonal(dim1=1, dim2=2).to(found.mean), **SAME)
    la, x = fitted("dense", "classification", "all", "kron")
    torch.manual_seed(0)
    theirs = la(x, link_approx="mc", n_samples=20_000)
    ours = pt.wrappers.from_laplace(la).predict(x, link="sampled", samples=20_000)
    assert float((theirs - ours.probs).abs().max()) < 0.01


def test_a_prior_from_laplace_torch_is_learned_from_and_saved(tmp_path):
    la, _ = fitted("dense", "classification", "all", "kron")
    prior = pt.wrappers.from_laplace(la).posterior
    prior.save(tmp_path / "prior.safetensors")
    again = pt.load(tmp_path / "prior.safetensors")
    x, y = examples("dense", "classification", 3)
    fit = pt.adapt(network("dense", 3), (x[:9], y[:9]), again, head="keep", progress=False)
    assert fit.predict(x).probs.shape == (30, 3)


def test_our_own_posterior_keeps_its_outputs_in_laplace_torch():
    x, y = examples("dense", "classification", 3)
    fit = pt.posterior(network("dense", 3), (x, y), estimator=pt.KFOC(), progress=False)
    for found, wanted in zip(pt.wrappers.to_laplace(fit)._glm_predictive_distribution(x), moments(fit, x), strict=True):
        torch.testing.assert_close(found.detach(), wanted, **SAME)


def test_what_has_no_counterpart_is_refused_by_name():
    la, _ = fitted("dense", "classification", "all", "full")
    with pytest.raises(NotConvertible, match="ties the 2 layers together"):
        pt.wrappers.from_laplace(la)
    x, y = examples("dense", "classification", 3)
    model = nn.Sequential(nn.Linear(4, 1200), nn.Tanh(), nn.Linear(1200, 3)).double()
    model[2].weight.data.mul_(3)  # as if it had been trained
    fit = pt.posterior(model, (x, y), precision=1.0, estimator=pt.KFAC(), progress=False)
    with pytest.raises(TooLarge, match="last layer"):
        pt.wrappers.to_laplace(fit)
    model[0].weight.requires_grad_(False)
    part = pt.posterior(network("dense", 3), (x, y), blocks=["0"], precision=1.0, progress=False)
    assert pt.wrappers.to_laplace(part).mean.shape == (25,)
