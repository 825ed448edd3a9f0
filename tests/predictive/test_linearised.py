"""The linearised predictive: J Σ Jᵀ without J, for every layer and every structure."""

from __future__ import annotations

import math

import pytest
import torch
from curvature_cases import case, data, jacobians, separable
from linear_gaussian import close, regression
from matrices import STRUCTURES, definite
from torch import nn

import posterity as pt
from posterity.algebra import Basis, JointEigen
from posterity.blocks import Replica, find_blocks, read_blocks
from posterity.data.batches import Batch
from posterity.errors import BadData, BlockMismatch
from posterity.gaussian import Gaussian
from posterity.predictive.linearised import output_moments

NETWORKS = ["mlp", "conv", "shared", "shared conv", "norms", "encoder", "tagger"]


def rotated(out: int, inp: int, seed: int) -> JointEigen:
    left, right = (torch.linalg.eigh(definite(n, seed)).eigenvectors for n in (out, inp))
    values = torch.rand(out, inp, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    return JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values)


PRECISIONS = STRUCTURES | {"rotated": rotated}


def gaussian(model: nn.Module, structure: str, scale: float = 1.0) -> Gaussian:
    """Around the network's weights, one structure for all blocks."""
    blocks = find_blocks(model)
    precision = {n: PRECISIONS[structure](*b.shape, i) * scale for i, (n, b) in enumerate(blocks.items())}
    return Gaussian(read_blocks(model, blocks), precision)


def closed_form(name: str, posterior: Gaussian) -> torch.Tensor:
    """Σ over blocks of J P⁻¹ Jᵀ with everything dense."""
    return torch.stack(
        [j @ torch.linalg.solve(posterior.precision[b].dense(), j.mT) for b, j in jacobians(name).items()]
    ).sum(0)


def moments(name: str, posterior: Gaussian) -> tuple[torch.Tensor, torch.Tensor]:
    it = case(name)
    return output_moments(Replica(it.model), posterior, Batch((it.x,), {}, torch.zeros(len(it.x))))


@pytest.mark.parametrize("structure", PRECISIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_covariance_is_the_jacobian_around_the_covariance_of_the_weights(name, structure):
    posterior = gaussian(case(name).model, structure)
    mean, covariance = moments(name, posterior)
    close(mean, case(name).outputs, 1e-12)
    close(covariance, closed_form(name, posterior))


@pytest.mark.parametrize("estimator", [pt.KFAC(), pt.KFOC(), pt.EKFAC(), pt.Diagonal(), pt.curvature.Dense()], ids=str)
@pytest.mark.parametrize("name", ["conv", "norms"])
def test_posteriors_as_they_are_learned_agree_too(name, estimator):
    model = case(name).model
    posterior = pt.update(model, pt.estimate(model, data(name), estimator, progress=False), pt.isotropic(model, 0.3))
    assert separable(dict(posterior.mean), model)
    close(moments(name, posterior)[1], closed_form(name, posterior), 1e-7)


def test_it_is_the_gaussians_mean_that_is_linearised_around_and_not_the_model():
    it = case("mlp")
    posterior = gaussian(it.model, "kronecker")
    moved = Gaussian({n: m + 0.1 for n, m in posterior.mean.items()}, posterior.precision)
    assert (moments("mlp", moved)[0] - it.outputs).abs().max() > 0.01


def test_for_a_linear_model_it_is_exact():
    problem = regression()
    mean, precision = problem.posterior()
    layer = problem.network(mean)
    prior = pt.isotropic(layer, 0.7)
    posterior = pt.update(
        layer,
        pt.estimate(
            layer, (problem.x, problem.y), pt.KFAC(pt.curvature.ExactLabels()), problem.likelihood, progress=False
        ),
        prior,
    )
    new = regression(9, seed=5)
    found = pt.predict(layer, posterior, new.x, problem.likelihood, method="linearised")
    close(found.mean[:, 0], new.design @ mean)
    close(found.epistemic[:, 0], (new.design @ torch.linalg.inv(precision) * new.design).sum(1))
    close(found.aleatoric, torch.full_like(found.mean, 1 / problem.noise))
    close(found.variance, found.epistemic + 1 / problem.noise)


@pytest.mark.parametrize("name", ["mlp", "conv"])
def test_the_probit_link_divides_centred_logits_by_their_spread(name):
    it = case(name)
    posterior = gaussian(it.model, "kronecker")
    classes = it.outputs.shape[-1]
    centre = torch.eye(classes, dtype=torch.float64) - 1 / classes
    variance = (centre @ closed_form(name, posterior) @ centre).diagonal(dim1=-2, dim2=-1)
    # What is common to all classes is no part of it: the softmax does not see it.
    expected = ((it.outputs @ centre) / (1 + math.pi / 8 * variance).sqrt()).softmax(-1)
    close(pt.predict(it.model, posterior, it.x, method="linearised").probs, expected)


def test_the_sampled_link_is_the_mean_softmax_of_normal_logits():
    it = case("mlp")
    posterior = gaussian(it.model, "kronecker")
    n = 20_000
    found = pt.predict(
        it.model,
        posterior,
        it.x,
        method="linearised",
        link="sampled",
        samples=n,
        generator=torch.Generator().manual_seed(0),
    )
    covariance = closed_form("mlp", posterior)
    logits = torch.distributions.MultivariateNormal(it.outputs, covariance)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        expected = logits.sample((n,)).softmax(-1).mean(0)
    # Softmax values have a standard deviation of at most a half: five standard errors of a difference of means.
    assert (found.probs - expected).abs().max() < 5 * 0.5 * (2 / n) ** 0.5
    assert (found.probs - it.outputs.softmax(-1)).abs().max() > 0.05


def test_draws_of_outputs_have_the_covariance_told():
    it = case("mlp")
    posterior = gaussian(it.model, "kronecker")
    n = 50_000
    found = pt.predict(
        it.model,
        posterior,
        it.x,
        pt.GaussianNoise(),
        method="linearised",
        samples=n,
        keep_draws=True,
        generator=torch.Generator().manual_seed(0),
    )
    expected = closed_form("mlp", posterior)
    centred = (found.draws - it.outputs).transpose(0, 1)
    spread = expected.diagonal(dim1=-2, dim2=-1).max()
    assert (centred.mT @ centred / n - expected).abs().max() < 6 * spread * (2 / n) ** 0.5
    close(found.epistemic, expected.diagonal(dim1=-2, dim2=-1))


def test_the_bernoulli_link_moderates_each_output_alone():
    it = case("mlp")
    posterior = gaussian(it.model, "diagonal")
    variance = closed_form("mlp", posterior).diagonal(dim1=-2, dim2=-1)
    found = pt.predict(it.model, posterior, it.x, pt.Bernoulli(), method="linearised")
    close(found.probs, (it.outputs / (1 + math.pi / 8 * variance).sqrt()).sigmoid())
    assert torch.equal(found.labels, (it.outputs > 0).long())


def test_a_block_the_output_does_not_depend_on_adds_nothing():
    class Detour(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(2, 3), nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.idle(x)
            return self.used(x)

    model, x = Detour().double(), torch.randn(4, 2, dtype=torch.float64)
    whole = pt.isotropic(model, 2.0, mean="model")
    a, b = (pt.predict(model, g, x, method="linearised") for g in (whole, whole.without("idle")))
    close(a.probs, b.probs, 1e-14)


def test_more_outputs_than_backward_passes_make_sense_for_are_refused():
    model = nn.Linear(2, 1001)
    with pytest.raises(BadData, match="each example has 1001 outputs"):
        pt.predict(model, pt.isotropic(model), torch.randn(3, 2), method="linearised")


def test_a_gaussian_over_other_blocks_is_refused():
    model = nn.Sequential(nn.Linear(2, 2))
    gaussian = pt.isotropic(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    for method in ("sampled", "linearised"):
        with pytest.raises(BlockMismatch, match='no block "1" in the network'):
            pt.predict(model, gaussian, torch.randn(3, 2), method=method)


def test_at_temperature_one_it_keeps_the_accuracy_that_sampling_loses():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 6, generator=generator)
    y = (x[:, :3].square() + x[:, 3:]).argmax(-1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
    prior = pt.isotropic(model, 0.05)
    pt.train(
        model, (x, y), prior, validation=None, epochs=40, lr=1e-2, batch_size=100, generator=generator, progress=False
    )
    posterior = pt.update(model, pt.estimate(model, (x, y), pt.KFOC(), generator=generator, progress=False), prior)
    right = (model(x).argmax(-1) == y).double().mean()
    linear, sampled = (
        (pt.predict(model, posterior, x, method=m, generator=generator).labels == y).double().mean()
        for m in ("linearised", "sampled")
    )
    assert right > 0.9
    assert linear > right - 0.01
    assert sampled < right - 0.05
