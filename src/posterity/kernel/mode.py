"""The most probable outputs of a linearised network at its training examples, by Newton's method in function space.

The objective is convex and the prior enters only through a kernel matrix. A step is a Cholesky factor, by far the greatest part
of what inference in function space costs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import Categorical, GaussianNoise, Likelihood
from posterity.errors import DidNotConverge, NotFinite
from posterity.kernel.latent import CoupledLatent, SharedLatent, symmetric

STEPS = 100
DECREASE = 1e-10
"""A Newton step that promises less than this many nats (relative to the objective) has arrived."""
NEAR = 1e-6
"""While steps promise more nats than this, they may be rough: where the next one begins need not be exact."""


def coupled_mode(
    gram: Float[Tensor, "side side"],
    start: Float[Tensor, "n outputs"],
    likelihood: Likelihood,
    targets: Tensor,
    guess: Float[Tensor, "n outputs"] | None = None,
) -> CoupledLatent:
    """Minimise NLL(start + Kw) + ½wᵀKw for a kernel over all outputs: a handful of Cholesky factors of side n·C."""
    (n, c), gram, start = start.shape, _checked(gram), start.double()
    single = gram.float()

    def newton(f: Tensor, residual: Tensor, kernel: Tensor = gram) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        root = likelihood.fisher_root(f)
        lower = torch.linalg.cholesky(_one_plus(kernel, root.to(kernel)))

        def solved(right: Tensor) -> Tensor:
            return torch.cholesky_solve(right.reshape(-1, 1).to(lower), lower).to(right).view(n, c, 1)

        b = (root @ (root.mT @ (f - start)[..., None])).squeeze(-1) - residual
        right = root.mT @ (gram @ b.flatten()).view(n, c, 1)
        inside = solved(right)
        if kernel is single:
            seen = inside + root.mT @ (gram @ (root @ inside).flatten()).view(n, c, 1)
            inside = inside + solved(right - seen)
        return b - (root @ inside).squeeze(-1), (root, lower)

    w, f, (root, lower) = _iterate(
        newton,
        lambda w: (gram @ w.flatten()).view(n, c),
        start,
        likelihood,
        targets,
        guess,
        gram,
        (lambda f, residual: newton(f, residual, single)) if _bears_rounding(gram, likelihood) else None,
    )
    log_det = 2 * float(lower.diagonal().log().sum())
    return CoupledLatent(gram, start, w, f, float(likelihood.nll(f, targets)), log_det, root, lower)


def _bears_rounding(gram: Float[Tensor, "side side"], likelihood: Likelihood) -> bool:
    """Whether steps far from the mode may take float32: half the work, and good enough a direction.

    Of Gaussian noise the first step arrives. The identity must not be lost beside the kernel.
    """
    return not isinstance(likelihood, GaussianNoise) and float(gram.abs().max()) * torch.finfo(torch.float32).eps < 1


def _one_plus(gram: Float[Tensor, "side side"], root: Float[Tensor, "n c c"]) -> Float[Tensor, "side side"]:
    """I + BᵀKB. Both K and the result are symmetric: the same product twice, with the matrix turned in between."""
    inner = gram
    for _ in range(2):
        inner = (root.mT @ inner.mT.reshape(*root.shape[:2], -1)).view_as(gram)
    inner.diagonal().add_(1)
    return inner


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
        inner = root[:, :, None] * torch.cholesky_inverse(lower) * root[:, None, :]
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


def _iterate(newton, times_gram, start, likelihood, targets, guess, gram, rough=None):  # type: ignore[no-untyped-def]
    """Newton steps, each as long as the objective falls along it.

    `guess` is a guess of the outputs: a step depends on the outputs alone, so the first one goes straight to where the guess
    points. Where classes can be separated the objective falls exponentially and plain Newton steps move logits by one nat each:
    longer ones cost nothing, since along a line outputs are known without another product with the kernel. `rough` is a cheaper
    Newton step for the way; the last ones are exact.
    """
    w, move = torch.zeros_like(start), torch.zeros_like(start)
    f = start if guess is None else guess.double()
    value, promised, arrived = float(likelihood.nll(start, targets)), float("inf"), False
    far, guessed = rough is not None, guess is not None
    for _ in range(STEPS):
        residual = likelihood.residual(f, targets)
        try:
            new, factors = (rough if far else newton)(f, residual)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            if far:
                far = False
                continue
            raise DidNotConverge(
                f"the kernel (largest entry {float(gram.abs().max()):.1e}) has lost its definiteness to rounding: choose a "
                "stronger prior (a larger floor), or run the network in float64."
            ) from error
        if arrived:
            return w, f, factors
        step, along = new - w, times_gram(new) - move
        # What a weight does outside the range of K moves no output: the promised decrease sees only what counts.
        promised = -float((step * (move + times_gram(residual))).sum())
        exact, far = not far, far and (guessed or promised > NEAR * (1 + abs(value)))
        if not guessed and promised <= DECREASE * (1 + abs(value)):
            if exact:
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
        f, guessed = start + move, False
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
