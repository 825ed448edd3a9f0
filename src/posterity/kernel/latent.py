"""Normal outputs: the most probable ones of a linearised network, the posterior around them, and what probabilities they mean.

Newton's method in function space: the objective is convex and the prior enters only through a kernel matrix. Two forms, by
the kernel: one that couples all outputs (side n·C), and one that is the same for every output (C matrices of side n).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.curvature import Bernoulli, Categorical, Likelihood
from posterity.errors import BadData, DidNotConverge, NotFinite

Link = Literal["pairwise", "probit", "bridge", "sampled"]
LINKS: tuple[Link, ...] = ("pairwise", "probit", "bridge", "sampled")
PROBIT = math.pi / 8
STEPS = 100
DECREASE = 1e-10
"""A Newton step that promises less than this many nats (relative to the objective) has arrived."""


@dataclass(frozen=True, eq=False)
class Latent(ABC):
    """A Laplace approximation over the outputs of the training examples."""

    gram: Tensor
    start: Float[Tensor, "n outputs"]
    """Outputs at the prior's mean."""
    weights: Float[Tensor, "n outputs"]
    """w with f = start + K w; at the mode minus the gradient of the NLL, as far as outputs tell."""
    outputs: Float[Tensor, "n outputs"]
    nll: float
    log_det: float
    """log det(I + KH), H the Hessian of the NLL."""

    @property
    def quadratic(self) -> float:
        """wᵀKw: the squared distance of the weights from the prior's mean, in the prior's metric."""
        return float((self.weights * (self.outputs - self.start)).sum())

    @property
    def log_evidence(self) -> float:
        """ln p(data) by Laplace, of the linearised model. Exact for Gaussian noise."""
        return -self.nll - 0.5 * self.quadratic - 0.5 * self.log_det

    @abstractmethod
    def mean(self, cross: Tensor) -> Float[Tensor, "m outputs"]:
        """What the posterior adds to the outputs at new inputs, from their kernel with the training examples."""

    @abstractmethod
    def covariance(self, cross: Tensor, prior: Tensor) -> Float[Tensor, "m outputs outputs"]:
        """The posterior covariance at new inputs, from their kernel with the training examples and with themselves."""

    @abstractmethod
    def blocks(self, groups: Int[Tensor, "groups size"]) -> Float[Tensor, "groups side side"]:
        """The posterior covariance of the outputs of groups of training examples, all of one size."""


@dataclass(frozen=True, eq=False)
class CoupledLatent(Latent):
    """Of a kernel K over all n·C outputs: with H = BBᵀ and I + BᵀKB = LLᵀ everything follows."""

    root: Float[Tensor, "n outputs outputs"]
    lower: Float[Tensor, "side side"]

    def mean(self, cross: Float[Tensor, "n outputs m outputs"]) -> Float[Tensor, "m outputs"]:
        return torch.einsum("ncmd,nc->md", cross, self.weights)

    def _reduced(self, cross: Float[Tensor, "side columns"]) -> Float[Tensor, "side columns"]:
        """A = L⁻¹BᵀK: the posterior covariance is the prior's minus AᵀA."""
        n, c, _ = self.root.shape
        turned = (self.root.mT @ cross.view(n, c, -1)).reshape(n * c, -1)
        return torch.linalg.solve_triangular(self.lower, turned, upper=False)

    def covariance(
        self, cross: Float[Tensor, "n outputs m outputs"], prior: Float[Tensor, "m outputs outputs"]
    ) -> Float[Tensor, "m outputs outputs"]:
        n, c, m, _ = cross.shape
        reduced = self._reduced(cross.reshape(n * c, m * c)).view(n * c, m, c).transpose(0, 1)
        return symmetric(prior - reduced.mT @ reduced)

    def blocks(self, groups: Int[Tensor, "groups size"]) -> Float[Tensor, "groups side side"]:
        n, c = self.outputs.shape
        reduced = self._reduced(self.gram).view(n * c, n, c)
        columns = reduced[:, groups].flatten(2).transpose(0, 1)
        entries = (groups[:, :, None] * c + torch.arange(c, device=groups.device)).flatten(1)
        return symmetric(self.gram[entries[:, :, None], entries[:, None, :]] - columns.mT @ columns)


@dataclass(frozen=True, eq=False)
class SharedLatent(Latent):
    """Of a kernel k (n × n) that is the same for every output and couples none: O(C n³) instead of O(C³n³).

    E_c = D_c^½ (I + D_c^½ k D_c^½)⁻¹ D_c^½, D the diagonal of H; the softmax couples outputs by M = Σ_c E_c.
    """

    inner: Float[Tensor, "outputs n n"]
    coupling: Float[Tensor, "n n"] | None
    """The Cholesky factor of M, where the likelihood couples outputs."""

    def mean(self, cross: Float[Tensor, "n m"]) -> Float[Tensor, "m outputs"]:
        return cross.mT @ self.weights

    def covariance(self, cross: Float[Tensor, "n m"], prior: Float[Tensor, " m"]) -> Float[Tensor, "m outputs outputs"]:
        pulled = self.inner @ cross  # outputs n m
        own = torch.diag_embed(prior[:, None] - (cross * pulled).sum(1).mT)
        if self.coupling is None:
            return own
        common = torch.linalg.solve_triangular(self.coupling, pulled, upper=False).permute(2, 0, 1)
        return symmetric(own + common @ common.mT)

    def blocks(self, groups: Int[Tensor, "groups size"]) -> Float[Tensor, "groups side side"]:
        count, size = groups.shape
        c = self.outputs.shape[1]
        cross = self.gram[:, groups]  # n groups size
        pulled = torch.einsum("cij,jgs->cigs", self.inner, cross)
        prior = self.gram[groups[:, :, None], groups[:, None, :]]
        own = prior - torch.einsum("ngs,cngt->cgst", cross, pulled)  # outputs groups size size
        total = torch.diag_embed(own.movedim(0, -1))  # groups size size outputs outputs
        if self.coupling is not None:
            flat = torch.linalg.solve_triangular(self.coupling, pulled.flatten(2), upper=False)
            flat = flat.view(c, -1, count, size).permute(2, 3, 0, 1)  # groups size outputs n
            total = total + torch.einsum("gscn,gtdn->gstcd", flat, flat)
        return symmetric(total.transpose(2, 3).reshape(count, size * c, size * c))


def coupled_mode(
    gram: Float[Tensor, "side side"],
    start: Float[Tensor, "n outputs"],
    likelihood: Likelihood,
    targets: Tensor,
    guess: Float[Tensor, "n outputs"] | None = None,
) -> CoupledLatent:
    """Minimise NLL(start + Kw) + ½wᵀKw for a kernel over all outputs: a handful of Cholesky factors of side n·C."""
    (n, c), gram, start = start.shape, _checked(gram), start.double()
    eye = torch.eye(n * c, dtype=torch.float64, device=gram.device)

    def newton(f: Tensor, residual: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        root = likelihood.fisher_root(f)
        inner = torch.einsum("iab,iajc,jcd->ibjd", root, gram.view(n, c, n, c), root).reshape(n * c, n * c)
        lower = torch.linalg.cholesky(eye + inner)
        b = (root @ (root.mT @ (f - start)[..., None])).squeeze(-1) - residual
        kb = (gram @ b.flatten()).view(n, c, 1)
        inside = torch.cholesky_solve((root.mT @ kb).reshape(-1, 1), lower).view(n, c, 1)
        return b - (root @ inside).squeeze(-1), (root, lower)

    w, f, (root, lower) = _iterate(
        newton, lambda w: (gram @ w.flatten()).view(n, c), start, likelihood, targets, guess, gram
    )
    log_det = 2 * float(lower.diagonal().log().sum())
    return CoupledLatent(gram, start, w, f, float(likelihood.nll(f, targets)), log_det, root, lower)


def shared_mode(
    gram: Float[Tensor, "n n"],
    start: Float[Tensor, "n outputs"],
    likelihood: Likelihood,
    targets: Tensor,
    guess: Float[Tensor, "n outputs"] | None = None,
) -> SharedLatent:
    """The same for a kernel that every output has to itself: C Cholesky factors of side n a step."""
    gram, start = _checked(gram), start.double()
    eye = torch.eye(len(gram), dtype=torch.float64, device=gram.device)
    coupled = isinstance(likelihood, Categorical)

    def newton(f: Tensor, residual: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor | None]]:
        hessian = f.softmax(-1) if coupled else likelihood.fisher_root(f).diagonal(dim1=-2, dim2=-1).square()
        root = hessian.mT.clamp_min(torch.finfo(torch.float64).tiny).sqrt()  # outputs n
        lower = torch.linalg.cholesky(eye + root[:, :, None] * gram * root[:, None, :])
        inner = symmetric(root[:, :, None] * torch.cholesky_solve(torch.diag_embed(root), lower))
        shift = f - start
        pull = hessian * shift
        b = pull - residual - (hessian * pull.sum(-1, keepdim=True) if coupled else 0)
        along = (inner @ (gram @ b).mT[..., None]).squeeze(-1).mT
        new = b - along
        coupling = None
        if coupled:
            coupling = torch.linalg.cholesky(inner.sum(0))
            common = torch.cholesky_solve(along.sum(-1, keepdim=True), coupling)
            new = new + (inner @ common).squeeze(-1).mT
        return new, (lower, inner, coupling)

    w, f, (lower, inner, coupling) = _iterate(newton, lambda w: gram @ w, start, likelihood, targets, guess, gram)
    log_det = 2 * float(lower.diagonal(dim1=-2, dim2=-1).log().sum())
    log_det += 0.0 if coupling is None else 2 * float(coupling.diagonal().log().sum())
    return SharedLatent(gram, start, w, f, float(likelihood.nll(f, targets)), log_det, inner, coupling)


def _iterate(newton, times_gram, start, likelihood, targets, guess, gram):  # type: ignore[no-untyped-def]
    """Newton steps, each as long as the objective falls along it.

    `guess` is a guess of the outputs: a step depends on the outputs alone, so the first one goes straight to where the guess
    points. Where classes can be separated the objective falls exponentially and plain Newton steps move logits by one nat each:
    longer ones cost nothing, since along a line outputs are known without another product with the kernel.
    """
    w, move = torch.zeros_like(start), torch.zeros_like(start)
    f = start if guess is None else guess.double()
    value, promised, arrived = float(likelihood.nll(start, targets)), float("inf"), False
    for k in range(STEPS):
        residual = likelihood.residual(f, targets)
        try:
            new, factors = newton(f, residual)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise DidNotConverge(
                f"the kernel (largest entry {float(gram.abs().max()):.1e}) has lost its definiteness to rounding: choose a "
                "stronger prior (a larger floor), or run the network in float64."
            ) from error
        if arrived:
            return w, f, factors
        step, along = new - w, times_gram(new) - move
        # What a weight does outside the range of K moves no output: the promised decrease sees only what counts.
        promised = -float((step * (move + times_gram(residual))).sum())
        if promised <= DECREASE * (1 + abs(value)) and (k > 0 or guess is None):
            # Newton's steps square their error: one more leaves nothing but rounding.
            arrived, w, f = True, new, start + move + along
            continue

        def objective(
            size: float, w: Tensor = w, move: Tensor = move, step: Tensor = step, along: Tensor = along
        ) -> float:
            there = move + size * along
            return float(likelihood.nll(start + there, targets)) + 0.5 * float(((w + size * step) * there).sum())

        size, reached = _line_search(objective, value)
        w, move, value = w + size * step, move + size * along, reached
        f = start + move
    raise DidNotConverge(
        f"Newton's method in function space promised {promised:.1e} nats more after {STEPS} steps: the kernel is badly "
        f"conditioned (largest entry {float(gram.abs().max()):.1e}). Choose a stronger prior (a larger floor)."
    )


def _line_search(objective: Callable[[float], float], value: float) -> tuple[float, float]:
    """A size of the step and the objective there: doubled while that helps, halved until it is no worse than `value`."""
    size, reached = 1.0, objective(1.0)
    while reached > value and size > 1e-6:
        size /= 2
        reached = objective(size)
    while size >= 1 and (further := objective(2 * size)) < reached:
        size, reached = 2 * size, further
    return size, reached


def _checked(gram: Tensor) -> Tensor:
    if not bool(torch.isfinite(gram).all()):
        raise NotFinite("the kernel is not finite: the network's gradients overflow at the training examples.")
    return symmetric(gram.double())


def symmetric(x: Tensor) -> Tensor:
    return (x + x.mT) / 2


def link(
    mean: Float[Tensor, "n outputs"],
    covariance: Float[Tensor, "n outputs outputs"],
    likelihood: Likelihood,
    kind: Link = "probit",
    *,
    samples: int = 1000,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "n outputs"]:
    """Probabilities of classes, or of each yes-or-no target, averaged over normal outputs.

    "probit" moderates the centred logits by their own variances (MacKay); "pairwise" moderates every difference of two
    logits by its variance, which is right for two classes; "bridge" matches a Dirichlet (Laplace bridge); "sampled" averages
    over draws. A shift common to all logits changes nothing in any of them, as in the softmax itself.
    """
    if kind not in LINKS:
        raise ValueError(f'link is one of {", ".join(LINKS)}, not "{kind}"')
    match likelihood:
        case Bernoulli():
            if kind == "sampled":
                return normal_draws(mean, covariance, samples, generator).sigmoid().mean(0)
            variance = covariance.diagonal(dim1=-2, dim2=-1).to(mean.dtype).clamp_min(0)
            return (mean / (1 + PROBIT * variance).sqrt()).sigmoid()
        case Categorical():
            mean, covariance = centred(mean, covariance)
            if kind == "sampled":
                return normal_draws(mean, covariance, samples, generator).softmax(-1).mean(0)
            return {"probit": _probit, "pairwise": _pairwise, "bridge": _bridge}[kind](mean, covariance.to(mean.dtype))
    raise BadData(f"{likelihood} has no probabilities to average: a regression predicts numbers.")


def centred(
    mean: Float[Tensor, "n classes"], covariance: Float[Tensor, "n classes classes"]
) -> tuple[Float[Tensor, "n classes"], Float[Tensor, "n classes classes"]]:
    """Both without the part that is common to all classes, which the softmax cannot see."""
    rows = covariance - covariance.mean(-1, keepdim=True)
    return mean - mean.mean(-1, keepdim=True), rows - rows.mean(-2, keepdim=True)


def spread(covariance: Float[Tensor, "n outputs outputs"], likelihood: Likelihood) -> Float[Tensor, "n ..."]:
    """How much outputs vary: the mean variance of an example's centred logits, or the variance of each yes-or-no output."""
    if isinstance(likelihood, Categorical):
        _, covariance = centred(covariance[..., 0], covariance)
        return covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(0)
    return covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0)


def _probit(mean: Tensor, covariance: Tensor) -> Tensor:
    variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    return (mean / (1 + PROBIT * variance).sqrt()).softmax(-1)


def _pairwise(mean: Tensor, covariance: Tensor) -> Tensor:
    """p_c ∝ 1 / Σ_k exp(−(f_c − f_k)/√(1 + π/8 Var(f_c − f_k)))."""
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    between = (variance[..., :, None] + variance[..., None, :] - 2 * covariance).clamp_min(0)
    gap = (mean[..., :, None] - mean[..., None, :]) / (1 + PROBIT * between).sqrt()
    return (-(-gap).logsumexp(-1)).softmax(-1)


def _bridge(mean: Tensor, covariance: Tensor) -> Tensor:
    """The Dirichlet whose logits have this mean and these variances (Hobbhahn et al. 2022)."""
    classes = mean.shape[-1]
    variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(mean.dtype).eps)
    spread = mean + (-mean).logsumexp(-1, keepdim=True) - 2 * math.log(classes)
    alpha = (1 - 2 / classes + spread.exp()) / variance
    return alpha / alpha.sum(-1, keepdim=True)


def normal_draws(
    mean: Float[Tensor, "n outputs"],
    covariance: Float[Tensor, "n outputs outputs"],
    samples: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "samples n outputs"]:
    """Draws from normals; a covariance of less than full rank is no trouble to its eigenvectors."""
    values, vectors = torch.linalg.eigh(covariance.double())
    root = vectors * values.clamp_min(0).sqrt()[..., None, :]
    where = mean.device if generator is None else generator.device
    z = torch.randn(samples, *mean.shape, 1, dtype=torch.float64, device=where, generator=generator).to(mean.device)
    return mean + (root @ z).squeeze(-1).to(mean.dtype)
