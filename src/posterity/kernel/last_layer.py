"""A last layer on features that stay as they are: its exact posterior, by one forward pass and no backward pass.

Outputs are linear in the layer's weights, so nothing is approximated but the shape of the likelihood (Laplace). Few examples are
dealt with in function space (`SharedKernel`, a kernel of features); many, on few features, in weight space (`WeightKernel`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posterity.blocks import evaluating
from posterity.data.batches import Batch
from posterity.errors import DidNotConverge, UnsupportedLayer
from posterity.kernel.gradients import Rows
from posterity.kernel.jacobian import Jacobian
from posterity.kernel.kernels import Kept, Kernel, Strength
from posterity.kernel.latent import Latent, symmetric
from posterity.kernel.mode import DECREASE, STEPS, Observations


@torch.no_grad()
def features_of(model: nn.Module, head: str, batch: Batch) -> tuple[Float[Tensor, "n inp"], Float[Tensor, "n outputs"]]:
    """What a last layer reads (with a one for its bias), and the network's outputs, in float64.

    Raises:
        UnsupportedLayer: if the network's outputs are not those of this layer, called once on a vector an example.
    """
    layer = model.get_submodule(head)
    seen: list[tuple[Tensor, Tensor]] = []
    handle = layer.register_forward_hook(lambda _module, given, out: seen.append((given[0], out)))
    try:
        with evaluating(model):
            outputs = batch.each(batch.to(next(model.parameters()).device).outputs(model))
    finally:
        handle.remove()
    if len(seen) != 1 or seen[0][0].ndim != 2 or not torch.equal(seen[0][1], outputs):
        raise UnsupportedLayer(
            f'the network\'s outputs are not those of "{head}", called once on one vector of features an example: only such a '
            "last layer has an exact posterior of its own. Leave out blocks=..., or give an estimator."
        )
    return with_one(seen[0][0].double(), layer), outputs.double()


def with_one(features: Float[Tensor, "n inp"], layer: nn.Module) -> Float[Tensor, "n _"]:
    """Features with a one for the bias, where the layer has one."""
    if isinstance(layer, nn.Linear) and layer.bias is not None:
        return torch.cat([features, features.new_ones(len(features), 1)], 1)
    return features


def as_jacobian(head: str, features: Float[Tensor, "n inp"], outputs: Float[Tensor, "n outputs"]) -> Jacobian:
    """Features in the form that kernels take; the gradients of outputs by the layer's outputs are the identity, written once."""
    n, c = outputs.shape
    eye = torch.eye(c, dtype=features.dtype, device=features.device)
    return Jacobian(outputs, {head: Rows(features, eye.expand(n, c, c))})


@dataclass(frozen=True, eq=False)
class WeightKernel(Kernel):
    """The last layer's posterior in weight space: where a kernel matrix would stand there are features, scaled by the prior."""

    head: str

    def between(
        self, first: Jacobian, second: Jacobian, strength: Strength | None, kept: Kept | None = None
    ) -> Float[Tensor, "m inp"]:
        return self._scaled(second, strength)

    def within(self, of: Jacobian, strength: Strength | None, kept: Kept | None = None) -> Float[Tensor, " m"]:
        return self._scaled(of, strength).square().sum(-1)

    def mode(self, gram: Tensor, of: Observations) -> Latent:
        return weights_mode(gram, of)

    def part(self, gram: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return gram[columns]

    def diagonal(self, gram: Tensor, of: Tensor) -> Tensor:
        return gram[of].square().sum(-1)

    def _scaled(self, of: Jacobian, strength: Strength | None) -> Float[Tensor, "n inp"]:
        features = of.blocks[self.head]
        assert isinstance(features, Rows)
        return features.a / (self.frames[self.head].floor if strength is None else strength.head) ** 0.5


@dataclass(frozen=True, eq=False)
class WeightsLatent(Latent):
    """A Laplace approximation over the weights of a last layer, in units of the prior: I + Σ H ⊗ φφᵀ = LLᵀ."""

    lower: Float[Tensor, "side side"]
    theta: Float[Tensor, "outputs inp"]
    """The layer's weights, times the root of the prior's precision."""

    def mean(self, cross: Float[Tensor, "m inp"]) -> Float[Tensor, "m outputs"]:
        return cross @ self.theta.mT

    def covariance(
        self, cross: Float[Tensor, "m inp"], prior: Float[Tensor, " m"]
    ) -> Float[Tensor, "m outputs outputs"]:
        return self._among(cross[:, None])

    def blocks(self, groups: Int[Tensor, "groups size"]) -> Float[Tensor, "groups side side"]:
        return self._among(self.gram[groups])

    def _among(self, rows: Float[Tensor, "groups size inp"]) -> Float[Tensor, "groups side side"]:
        """The covariance of the outputs of the rows of each group."""
        (count, size, _), c = rows.shape, self.outputs.shape[1]
        eye = torch.eye(c, dtype=rows.dtype, device=rows.device)
        columns = torch.einsum("cd,gsi->cigsd", eye, rows).reshape(len(self.lower), -1)
        reduced = torch.linalg.solve_triangular(self.lower, columns, upper=False).view(-1, count, size * c)
        return symmetric(torch.einsum("kgc,kgd->gcd", reduced, reduced))


def weights_mode(features: Float[Tensor, "n inp"], of: Observations) -> WeightsLatent:
    """Minimise NLL(start + Φθᵀ) + ½‖θ‖² by Newton's method: a Cholesky factor of side inp · outputs a step."""
    start, likelihood, targets, guess = of.start, of.likelihood, of.targets, of.guess
    # At the mode the weights are what the residuals make of the features: so they nearly are at outputs that are nearly right.
    near = torch.zeros_like(start) if guess is None else -likelihood.residual(guess.double(), targets)
    theta = near.mT @ features

    def objective(theta: Tensor) -> tuple[float, Tensor]:
        f = start + features @ theta.mT
        return float(likelihood.nll(f, targets)) + 0.5 * float(theta.square().sum()), f

    value, f = objective(theta)
    arrived = False
    for _ in range(STEPS):
        residual = likelihood.residual(f, targets)
        curvature = gauss_newton(features, likelihood.fisher_root(f))
        curvature.diagonal().add_(1)
        lower = torch.linalg.cholesky(curvature)
        if arrived:
            log_det = 2 * float(lower.diagonal().log().sum())
            return WeightsLatent(
                features, start, -residual, f, float(likelihood.nll(f, targets)), log_det, lower, theta
            )
        slope = residual.mT @ features + theta
        step = -torch.cholesky_solve(slope.reshape(-1, 1), lower).view_as(theta)
        if -float((slope * step).sum()) <= DECREASE * (1 + abs(value)):
            # Newton's steps square their error: one more leaves nothing but rounding.
            arrived, theta = True, theta + step
            f = objective(theta)[1]
            continue
        size = 1.0
        while (tried := objective(theta + size * step))[0] > value and size > 1e-6:
            size /= 2
        theta, (value, f) = theta + size * step, tried
    raise DidNotConverge(
        f"Newton's method in weight space has not arrived after {STEPS} steps: choose a stronger prior (a larger precision)."
    )


def gauss_newton(features: Float[Tensor, "n inp"], root: Float[Tensor, "n outputs rank"]) -> Float[Tensor, "side side"]:
    """Σ H ⊗ φφᵀ over all examples, row-major over (outputs, inp). O(n · inp² · outputs²), two outputs at a time."""
    inp = features.shape[1]
    c = root.shape[1]
    total = features.new_empty(c, inp, c, inp)
    for i in range(c):
        for j in range(i + 1):
            weight = (root[:, i] * root[:, j]).sum(-1)
            block = (features * weight[:, None]).mT @ features
            total[i, :, j], total[j, :, i] = block, block.mT
    return total.view(c * inp, c * inp)
