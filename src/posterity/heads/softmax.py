"""Many softmax heads at once: every strength and every fold in one quasi-Newton run, on shared inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.errors import DidNotConverge

MEMORY = 8
"""Pairs of steps and changes of slope that are kept."""
STEPS = 500
NEWTON, LINE = 4, 40
"""Steps of Newton along a direction, and with those that halve what went too far."""
BYTES = 2**27
"""What the tensors of one run may take."""


@dataclass(frozen=True, eq=False)
class SoftmaxProblems:
    """Heads to be fitted: Σ_i w_bi NLL(o_b + z_i W_b) + ½ Σ_j γ_bj ‖W_bj‖², for b = 1 … B."""

    inputs: Float[Tensor, "n r"]
    targets: Float[Tensor, "n classes"]
    """One in the column of the label, else zero. Classes without any label are left out."""
    weights: Float[Tensor, "problems n"]
    """How often each example counts: zero where it is left out."""
    precisions: Float[Tensor, "problems r"]
    offsets: Callable[[Tensor], Float[Tensor, "n part classes"]]
    """Logits at the prior's mean, for some of the problems."""

    def part(self, index: Tensor) -> SoftmaxProblems:
        return SoftmaxProblems(
            self.inputs,
            self.targets,
            self.weights[index],
            self.precisions[index],
            lambda of: self.offsets(index[of]),
        )


def modes(problems: SoftmaxProblems, tolerance: float) -> Float[Tensor, "problems r classes"]:
    """The weights that minimise each problem, to within about `tolerance` nats (half of Newton's decrement).

    L-BFGS whose first matrix is the diagonal of Böhning's bound, exact line searches on the shared product of inputs and
    direction, and no more work for problems that have arrived. O(n · r · classes) a problem and step.
    """
    (n, r), (count, classes) = problems.inputs.shape, (len(problems.weights), problems.targets.shape[1])
    size = max(1, BYTES // (8 * classes * (5 * n + (2 * MEMORY + 5) * r)))
    parts = torch.arange(count).split(size)
    return torch.cat([_modes(problems.part(part), tolerance) for part in parts])


def _modes(problems: SoftmaxProblems, tolerance: float) -> Float[Tensor, "problems r classes"]:
    z, targets = problems.inputs, problems.targets[:, None]
    (n, r), classes = z.shape, problems.targets.shape[1]
    live = torch.arange(len(problems.weights))
    found = z.new_zeros(len(live), r, classes)
    weights, precision = problems.weights.mT, problems.precisions[:, :, None]
    first = 1 / (problems.precisions + 0.25 * problems.weights @ z.square())[:, :, None]
    w, f = torch.zeros_like(found), problems.offsets(live).clone()

    def slope_at(f: Tensor, w: Tensor) -> Tensor:
        residual = ((f.softmax(-1) - targets) * weights[:, :, None]).reshape(n, -1)
        return (z.mT @ residual).view(r, -1, classes).transpose(0, 1) + precision * w

    slope = slope_at(f, w)
    history: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(STEPS):
        direction = _direction(slope, first, history)
        decrease = -(slope * direction).sum((1, 2))
        moving = decrease > tolerance
        found[live[~moving]] = w[~moving]
        if not moving.any():
            return found
        if not moving.all():
            live, w, slope, direction, decrease = (t[moving] for t in (live, w, slope, direction, decrease))
            f, weights, precision, first = f[:, moving], weights[:, moving], precision[moving], first[moving]
            history = [(s[moving], y[moving], c[moving]) for s, y, c in history]
        change = (z @ direction.transpose(0, 1).reshape(r, -1)).view(n, -1, classes)
        step = _step(f, change, w, direction, targets, weights, precision, decrease)[:, None, None]
        w, f, moved = w + step * direction, f + step[:, 0] * change, step * direction
        new = slope_at(f, w)
        along = (moved * (new - slope)).sum((1, 2)).clamp_min(1e-300)
        history = [*history, (moved, new - slope, 1 / along)][-MEMORY:]
        slope = new
    raise DidNotConverge(
        f"{len(live)} of {len(found)} softmax heads have not arrived after {STEPS} steps: the strengths are too small for "
        f"{n} examples. Give larger strengths in the recipe."
    )


def _direction(slope: Tensor, first: Tensor, history: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Minus the inverse of the approximate Hessian times the slope (two loops over the history)."""
    q, shares = slope.clone(), []
    for moved, change, curve in reversed(history):
        share = (curve * (moved * q).sum((1, 2)))[:, None, None]
        q -= share * change
        shares.append(share)
    q *= first
    for (moved, change, curve), share in zip(history, reversed(shares), strict=True):
        q += (share - (curve * (change * q).sum((1, 2)))[:, None, None]) * moved
    return -q


def _step(
    f: Tensor,
    change: Tensor,
    w: Tensor,
    direction: Tensor,
    targets: Tensor,
    weights: Tensor,
    precision: Tensor,
    decrease: Tensor,
) -> Float[Tensor, " problems"]:
    """How far to go: Newton's method for one number, on logits that are linear in it.

    The loss is convex along the direction, so a step whose slope is above the first one's size went too far: it is halved back.
    """
    linear = (precision * w * direction).sum((1, 2)) - (weights * (change * targets).sum(-1)).sum(0)
    square = (precision * direction.square()).sum((1, 2))
    step, short = torch.ones_like(decrease), torch.zeros_like(decrease)
    for i in range(LINE):
        p = (f + step[:, None] * change).softmax(-1)
        weighted = p * change
        mean = weighted.sum(-1)
        slope = (weights * mean).sum(0) + linear + step * square
        if bool((slope.abs() < (0.3 if i < NEWTON else 1.0) * decrease).all()):
            break
        short = torch.where((slope < 0) & (step > short), step, short)
        if i < NEWTON:
            curve = (weights * ((weighted * change).sum(-1) - mean.square())).sum(0) + square
            step = (step - slope / curve.clamp_min(1e-300)).clamp(0.02, 8.0)
        else:
            step = torch.where(slope > decrease, 0.5 * (step + short.where(short < step, 0.0)), step)
    return step
