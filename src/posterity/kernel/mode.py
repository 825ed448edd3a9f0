"""The most probable outputs of a linearised network at its training examples, by Newton's method in function space.

The objective is convex and the prior enters only through a kernel matrix. A Cholesky factor is by far the greatest part of what
a step costs, so each serves as many steps as it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import Categorical, GaussianNoise, Likelihood
from posterity.errors import DidNotConverge, NotFinite, TooLarge
from posterity.kernel.latent import CoupledLatent, SharedLatent, symmetric

STEPS = 300
DECREASE = 1e-10
"""A Newton step that promises less than this many nats (relative to the objective) has arrived: it squares its error."""
NOTHING = 1e-20
"""So has any step that promises less than this: nothing but rounding is left."""
NEAR = 1e-6
"""While steps promise more nats than this, factors may be rough: where the next one begins need not be exact."""
FALLS = 0.1
"""A factor serves on while a step with it promises less than this part of what the one before did."""
ROOM = 6 << 30
"""Bytes that a kernel for every output may take, of which four are held at a time."""
Solve = Callable[[Tensor], Tensor]
"""(I + HK)⁻¹ times a vector, H the Hessian of the NLL."""
Factors = TypeVar("Factors")


@dataclass(frozen=True, eq=False)
class Observations:
    """What a mode is found from, beside the prior."""

    start: Float[Tensor, "n outputs"]
    """Outputs at the prior's mean."""
    likelihood: Likelihood
    targets: Tensor
    guess: Float[Tensor, "n outputs"] | None = None
    """Of the outputs at the mode."""


def coupled_mode(gram: Float[Tensor, "side side"], of: Observations) -> CoupledLatent:
    """Minimise NLL(start + Kw) + ½wᵀKw for a kernel over all outputs: a handful of Cholesky factors of side n·C or less."""
    gram, start, likelihood = _checked(gram), of.start.double(), of.likelihood
    (n, c), single = start.shape, gram.float()

    def times_gram(w: Tensor) -> Tensor:
        return (gram @ w.flatten()).view(n, c)

    def factor(f: Tensor, kernel: Tensor = gram) -> tuple[Solve, tuple[Tensor, Tensor]]:
        root = likelihood.fisher_root(f)
        lower = torch.linalg.cholesky(_one_plus(kernel, root.to(kernel)))

        def solve(b: Tensor) -> Tensor:
            turned = root.mT @ times_gram(b)[..., None]
            inside = torch.cholesky_solve(turned.reshape(-1, 1).to(lower), lower).to(b)
            return b - (root @ inside.view_as(turned)).squeeze(-1)

        return solve, (root, lower)

    rough = (lambda f: factor(f, single)) if _bears_rounding(gram, likelihood) else factor
    w, f, (root, lower) = _iterate(factor, rough, times_gram, of, gram)
    log_det = 2 * float(lower.diagonal().log().sum())
    return CoupledLatent(gram, start, w, f, float(likelihood.nll(f, of.targets)), log_det, root, lower)


def _bears_rounding(gram: Float[Tensor, "side side"], likelihood: Likelihood) -> bool:
    """Whether factors far from the mode may be in float32: half the work, and good enough a direction.

    Of Gaussian noise the first step arrives. The identity must not be lost beside the kernel.
    """
    return not isinstance(likelihood, GaussianNoise) and float(gram.abs().max()) * torch.finfo(torch.float32).eps < 1


def _one_plus(gram: Float[Tensor, "side side"], root: Float[Tensor, "n c rank"]) -> Float[Tensor, "less less"]:
    """I + BᵀKB. Both K and the result are symmetric: the same product twice, with the matrix turned in between."""
    inner = gram
    for _ in range(2):
        inner = (root.mT @ inner.mT.reshape(*root.shape[:2], -1)).flatten(0, 1)
    inner.diagonal().add_(1)
    return inner


def shared_mode(gram: Float[Tensor, "n n"], of: Observations) -> SharedLatent:
    """The same for a kernel that every output has to itself: C Cholesky factors of side n where the other has one of n·C."""
    n, c = of.start.shape
    if (need := 4 * 8 * c * n**2) > ROOM:
        raise TooLarge(
            f"the exact posterior of {c:,} outputs on {n:,} examples takes {need / 2**30:.1f} GiB (limit {ROOM / 2**30:g}): "
            "for many classes fit a head on the network's features (posterity.heads), or give fewer examples."
        )
    gram, start, likelihood = _checked(gram), of.start.double(), of.likelihood
    coupled = isinstance(likelihood, Categorical)

    def factor(f: Tensor) -> tuple[Solve, tuple[Tensor, Tensor, Tensor | None]]:
        hessian = f.softmax(-1) if coupled else likelihood.fisher_root(f).diagonal(dim1=-2, dim2=-1).square()
        root = hessian.mT.clamp_min(torch.finfo(torch.float64).tiny).sqrt()  # outputs n
        scale = root[:, :, None] * root[:, None, :]
        one_plus = scale * gram
        one_plus.diagonal(dim1=-2, dim2=-1).add_(1)
        lower = torch.linalg.cholesky(one_plus)
        inner = torch.cholesky_inverse(lower).mul_(scale)
        coupling = torch.linalg.cholesky(inner.sum(0)) if coupled else None

        def solve(b: Tensor) -> Tensor:
            along = (inner @ (gram @ b).mT[..., None]).squeeze(-1).mT
            if coupling is None:
                return b - along
            common = torch.cholesky_solve(along.sum(-1, keepdim=True), coupling)
            return b - along + (inner @ common).squeeze(-1).mT

        return solve, (lower, inner, coupling)

    w, f, (lower, inner, coupling) = _iterate(factor, factor, lambda w: gram @ w, of, gram)
    log_det = 2 * float(lower.diagonal(dim1=-2, dim2=-1).log().sum())
    log_det += 0.0 if coupling is None else 2 * float(coupling.diagonal().log().sum())
    return SharedLatent(gram, start, w, f, float(likelihood.nll(f, of.targets)), log_det, inner, coupling)


def _iterate(
    exact: Callable[[Tensor], tuple[Solve, Factors]],
    rough: Callable[[Tensor], tuple[Solve, Factors]],
    times_gram: Callable[[Tensor], Tensor],
    of: Observations,
    gram: Tensor,
) -> tuple[Float[Tensor, "n outputs"], Float[Tensor, "n outputs"], Factors]:
    """Newton steps, each as long as the objective falls along it: w and the outputs at the mode, and exact factors there.

    A step depends on the outputs alone, so the first one goes straight to where a guess of them points. Where classes can be
    separated the objective falls exponentially and plain Newton steps move logits by one nat each: longer ones cost nothing,
    since along a line outputs are known without another product with the kernel. Gradients are always those of where a step
    begins, so factors of earlier outputs, and `rough` ones, change how fast the mode is reached and not where it is.
    """
    start, likelihood, targets, guess = of.start.double(), of.likelihood, of.targets, of.guess

    def objective(w: Tensor, move: Tensor) -> float:
        return float(likelihood.nll(start + move, targets)) + 0.5 * float((w * move).sum())

    def beyond(w: Tensor, move: Tensor, step: Tensor, along: Tensor, size: float) -> float:
        return objective(w + size * step, move + size * along)

    w, move = torch.zeros_like(start), torch.zeros_like(start)
    f = start if guess is None else guess.double()
    value, promised = float(likelihood.nll(start, targets)), float("inf")
    held: tuple[Solve, Factors] | None = None
    guessed, arrived, sharp = guess is not None, False, rough is exact
    for _ in range(STEPS):
        new = held is None
        if held is None:
            if not guessed:
                # Long steps add up their rounding: beside a factor's cost, outputs again and their value cost nothing.
                move = times_gram(w)
                f, value = start + move, objective(w, move)
            try:
                held = (exact if sharp else rough)(f)
            except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
                if not sharp:
                    sharp = True
                    continue
                raise DidNotConverge(
                    f"the kernel (largest entry {float(gram.abs().max()):.1e}) has lost its definiteness to rounding: choose a "
                    "stronger prior (a larger floor), or run the network in float64."
                ) from error
            if arrived and sharp:
                return w, f, held[1]
        solve, residual = held[0], likelihood.residual(f, targets)
        step = solve(_curved(likelihood, f, f - start) - residual) if guessed else -solve(residual + w)
        along = times_gram(step)
        if not guessed:
            # What a weight does outside the range of K moves no output: the promised decrease sees only what counts.
            before, promised = promised, -float((along * (residual + w)).sum())
            unit = 1 + abs(value)
            arrived = abs(promised) <= (DECREASE if new and sharp else NOTHING) * unit
            if arrived or not 0 <= promised < FALLS * before:
                held, sharp = None, sharp or promised <= NEAR * unit
        size = 1.0
        if guessed or promised > DECREASE * unit:
            size, value = _line_search(partial(beyond, w, move, step, along), value, math.inf if new else 2)
            # A factor whose steps are not the right ones as they are has been left behind: long steps multiply its rounding.
            held = held if size == 1 else None
        w, move = w + size * step, move + size * along
        f, guessed = start + move, False
    raise DidNotConverge(
        f"Newton's method in function space promised {promised:.1e} nats more after {STEPS} steps: the kernel is badly "
        f"conditioned (largest entry {float(gram.abs().max()):.1e}). Choose a stronger prior (a larger floor)."
    )


def _curved(likelihood: Likelihood, f: Float[Tensor, "n outputs"], x: Float[Tensor, "n outputs"]) -> Tensor:
    """The Hessian of the NLL at outputs f, times x."""
    root = likelihood.fisher_root(f)
    return (root @ (root.mT @ x[..., None])).squeeze(-1)


def _line_search(objective: Callable[[float], float], value: float, most: float) -> tuple[float, float]:
    """A size of the step and the objective there: doubled up to `most` while that helps, halved until no worse than `value`."""
    size, reached = 1.0, objective(1.0)
    while reached > value and size > 1e-6:
        size /= 2
        reached = objective(size)
    while 1 <= size < most and (further := objective(2 * size)) < reached:
        size, reached = 2 * size, further
    return size, reached


def _checked(gram: Tensor) -> Tensor:
    if not bool(torch.isfinite(gram).all()):
        raise NotFinite("the kernel is not finite: the network's gradients overflow at the training examples.")
    return symmetric(gram.double())
