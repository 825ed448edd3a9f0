"""Variational inference in function space: the Gaussian over outputs of greatest ELBO, beside Laplace's at the mode.

Under a wide prior the mode of a softmax lies far from its mean. The best Gaussian has the form S⁻¹ = K⁻¹ + Λ with a block Λᵢ
for each example: at the optimum Λᵢ is the expected Hessian of the example's NLL, and the mean is start + K w with w minus the
expected gradient. Natural-gradient steps move to both. Expectations are over points that are fixed once, so the ELBO is an
ordinary function, and a step that does not raise it is halved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.curvature import GaussianNoise, Likelihood
from posterity.errors import DidNotConverge, TooLarge
from posterity.kernel.kernels import SharedKernel, Strength
from posterity.kernel.latent import CoupledLatent, symmetric
from posterity.kernel.left_out import LeaveOneOut, downdate
from posterity.kernel.linearised import FunctionPosterior, LinearisedNetwork
from posterity.kernel.mode import Observations, coupled_mode

SIDE = 3000
"""The largest n·C."""
HERMITE = 24
"""Points an output, where they are on a grid."""


@dataclass(frozen=True)
class Laplace:
    """A Gaussian at the mode, with the Hessian there: exact for Gaussian noise."""


@dataclass(frozen=True)
class VariationalGaussian:
    """The Gaussian of greatest ELBO."""

    draws: int = 128
    """For expectations over three outputs or more: half of them mirrored, with mean zero and covariance the identity. One or two
    outputs have Gauss–Hermite points instead, which leave no error worth the name."""
    steps: int = 50
    tolerance: float = 1e-6
    """A step that raises the ELBO by less than this (relative) is the last."""

    def points(self, outputs: int) -> tuple[Float[Tensor, "points outputs"], Float[Tensor, " points"]]:
        """Standard normal points and their weights: the same for every example, strength and call."""
        if outputs <= 2:
            off = torch.arange(1, HERMITE, dtype=torch.float64).sqrt()
            nodes, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
            weights = vectors[0].square()
            if outputs == 1:
                return nodes[:, None], weights
            return torch.cartesian_prod(nodes, nodes), torch.cartesian_prod(weights, weights).prod(1)
        half = max(self.draws // 2, outputs)
        z = torch.randn(half, outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        # Mirrored and whitened: linear and quadratic functions have their exact expectation.
        values, vectors = torch.linalg.eigh(z.mT @ z / half)
        z = z @ (vectors / values.sqrt()) @ vectors.mT
        return torch.cat([z, -z]), torch.full((2 * half,), 0.5 / half, dtype=torch.float64)


Inference = Laplace | VariationalGaussian


@dataclass(frozen=True, eq=False)
class VariationalLatent(CoupledLatent):
    """A variational posterior over the outputs of the training examples: `root` is of the expected Hessian."""

    elbo: float
    history: tuple[float, ...]
    """The ELBO after every step; it never falls."""
    shared: bool
    """Whether kernels with new inputs come as one number for all outputs."""
    spread: Float[Tensor, "n outputs outputs"]
    """The covariance of every example's outputs."""

    def _all(self, cross: Tensor) -> Tensor:
        eye = torch.eye(self.outputs.shape[1], dtype=cross.dtype, device=cross.device)
        return torch.einsum("nm,cd->ncmd", cross, eye) if self.shared else cross

    def mean(self, cross: Tensor) -> Float[Tensor, "m outputs"]:
        return cross.mT @ self.weights if self.shared else super().mean(cross)

    def covariance(self, cross: Tensor, prior: Tensor) -> Float[Tensor, "m outputs outputs"]:
        c = self.outputs.shape[1]
        own = prior[:, None, None] * torch.eye(c, dtype=prior.dtype, device=prior.device) if self.shared else prior
        return super().covariance(self._all(cross), own)


@dataclass(frozen=True, eq=False)
class VariationalPosterior(FunctionPosterior):
    """The posterior over outputs for one strength of the prior, by variational inference."""

    latent: VariationalLatent

    @property
    def log_evidence(self) -> float:
        """The ELBO: a lower bound on ln p(data) of the linearised model, up to the draws' error."""
        return self.latent.elbo

    def left_out(self, groups: Int[Tensor, " n"] | None = None) -> LeaveOneOut:
        """Every training example's outputs with its own factor taken out: its cavity."""
        if groups is not None:
            raise ValueError("groups are left out of a Laplace posterior only.")
        latent = self.latent
        s = latent.blocks(torch.arange(len(latent.outputs))[:, None])
        covariance = downdate(s, latent.root)
        return LeaveOneOut(latent.outputs - (covariance @ latent.weights[..., None]).squeeze(-1), covariance)


def infer(
    of: LinearisedNetwork, strength: Strength | None = None, inference: Inference | None = None
) -> FunctionPosterior:
    """The posterior for one strength of the prior, by Laplace or by variational inference.

    Args:
        of: a network made linear at its training examples.
        strength: of the prior; None takes the prior's own numbers.
        inference: `Laplace()` (the default) or `VariationalGaussian()`.

    Returns:
        A posterior with `moments`, `left_out` and `log_evidence`.

    Raises:
        TooLarge: if there are more than 3,000 examples times outputs.

    Example:
        >>> best = fit.choice.best.posterior
        >>> infer(best.of, best.strength, Variational()).moments(fit.function.jacobian(model, batches))
    """
    start = of.start()
    if not isinstance(inference, VariationalGaussian) or isinstance(of.likelihood, GaussianNoise):
        return of.posterior(strength)  # of Gaussian noise Laplace is exact
    if start.numel() > SIDE:
        raise TooLarge(
            f"{start.numel():,} examples times outputs are beyond variational inference (limit {SIDE:,}): use Laplace()."
        )
    gram, shared = of.kernel.own(of.train, strength), isinstance(of.kernel, SharedKernel)
    if shared:
        gram = torch.kron(gram, torch.eye(start.shape[1], dtype=gram.dtype, device=gram.device))
    side = start.numel()
    observed = Observations(start, of.likelihood, of.targets)
    latent = fit_variational(gram.reshape(side, side), observed, inference, shared)
    return VariationalPosterior(of, strength, latent)


def fit_variational(
    gram: Float[Tensor, "side side"], of: Observations, inference: VariationalGaussian, shared: bool = False
) -> VariationalLatent:
    """Damped natural-gradient steps from Laplace's posterior. A Cholesky factor of side n·C for every step that is tried."""
    laplace = coupled_mode(gram, of)
    points = inference.points(of.start.shape[1])
    problem = _SiteProblem(laplace.gram, laplace.start, of.likelihood, of.targets, *points, shared)
    precision = laplace.root @ laplace.root.mT
    # Sites: exp(linear · f − ½ fᵀ precision f) for every example.
    linear = (precision @ laplace.outputs[..., None]).squeeze(-1) + laplace.weights
    here = problem.at(linear, precision)
    history, size = [here.elbo], 1.0
    for _ in range(inference.steps):
        gradient, hessian = problem.expected(here)
        wanted = (hessian @ here.outputs[..., None]).squeeze(-1) - gradient
        size = min(1.0, 2 * size)
        while True:
            tried = problem.at(linear + size * (wanted - linear), precision + size * (hessian - precision))
            if tried.elbo > here.elbo:
                break
            size /= 2
            if size < 1e-4:
                return replace(here, history=tuple(history))
        linear, precision = linear + size * (wanted - linear), precision + size * (hessian - precision)
        gain, here = tried.elbo - here.elbo, tried
        history.append(here.elbo)
        if gain < inference.tolerance * (1 + abs(here.elbo)):
            break
    return replace(here, history=tuple(history))


@dataclass(frozen=True, eq=False)
class _SiteProblem:
    """The ELBO as a function of the sites."""

    gram: Float[Tensor, "side side"]
    start: Float[Tensor, "n outputs"]
    likelihood: Likelihood
    targets: Tensor
    points: Float[Tensor, "points outputs"]
    weights: Float[Tensor, " points"]
    shared: bool

    def at(self, linear: Float[Tensor, "n c"], precision: Float[Tensor, "n c c"]) -> VariationalLatent:
        n, c = self.start.shape
        values, vectors = torch.linalg.eigh(symmetric(precision))
        root = vectors * values.clamp_min(0).sqrt()[:, None, :]
        inner = torch.einsum("iab,iajc,jcd->ibjd", root, self.gram.view(n, c, n, c), root).reshape(n * c, n * c)
        inner.diagonal().add_(1)
        lower, failed = torch.linalg.cholesky_ex(inner)
        if int(failed):
            raise DidNotConverge("the kernel has lost its definiteness to rounding: choose a larger floor.")
        b = linear - (precision @ self.start[..., None]).squeeze(-1)
        kb = (self.gram @ b.flatten()).view(n, c, 1)
        inside = torch.cholesky_solve((root.mT @ kb).reshape(-1, 1), lower).view(n, c, 1)
        w = b - (root @ inside).squeeze(-1)
        move = (self.gram @ w.flatten()).view(n, c)
        log_det = 2 * float(lower.diagonal().log().sum())
        outputs = self.start + move
        nll = float(self.likelihood.nll(outputs, self.targets))
        bare = CoupledLatent(self.gram, self.start, w, outputs, nll, log_det, root, lower)
        s = bare.blocks(torch.arange(n)[:, None])
        losses = torch.stack([self.likelihood.nll(one, self.targets) for one in self._around(outputs, s)])
        fit = float(self.weights @ losses)
        divergence = 0.5 * (float((w * move).sum()) + log_det - float((precision * s).sum()))
        elbo = -fit - divergence
        return VariationalLatent(self.gram, self.start, w, outputs, nll, log_det, root, lower, elbo, (), self.shared, s)

    def _around(self, outputs: Tensor, s: Tensor) -> Float[Tensor, "points n c"]:
        """The quadrature points of the outputs."""
        values, vectors = torch.linalg.eigh(s)
        root = (vectors * values.clamp_min(0).sqrt()[:, None, :]) @ vectors.mT
        return outputs + torch.einsum("ncd,kd->knc", root, self.points)

    def expected(self, here: VariationalLatent) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c c"]]:
        """The gradient and Hessian of every example's NLL, averaged over the posterior."""
        gradient, hessian = torch.zeros_like(here.outputs), torch.zeros_like(here.root)
        for weight, one in zip(self.weights, self._around(here.outputs, here.spread), strict=True):
            gradient += weight * self.likelihood.residual(one, self.targets)
            root = self.likelihood.fisher_root(one)
            hessian += weight * (root @ root.mT)
        return gradient, hessian
