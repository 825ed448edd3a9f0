"""A minimum of few numbers whose loss is dear."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

KEPT = 10
"""Pairs of a step and a change of slope."""


def minimised(
    loss: Callable[[Tensor], tuple[float, Tensor]], start: Float[Tensor, " k"], steps: int, least: float = 1e-3
) -> Float[Tensor, " k"]:
    """By L-BFGS with backtracking, until a step gains less than `least`. `loss` returns the value and the slope."""
    here, (value, slope) = start, loss(start)
    pairs: list[tuple[Tensor, Tensor]] = []
    for _ in range(steps):
        direction = slope.clone()
        kept = []
        for s, g in reversed(pairs):
            a = float(s @ direction) / float(s @ g)
            direction -= a * g
            kept.append(a)
        if pairs:
            s, g = pairs[-1]
            direction *= float(s @ g) / float(g @ g)
        for (s, g), a in zip(pairs, reversed(kept), strict=True):
            direction += (a - float(g @ direction) / float(s @ g)) * s
        direction = -direction
        decrease = float(slope @ direction)
        step = 1.0 if pairs else min(1.0, 1 / float(slope.abs().max().clamp_min(1e-12)))
        step = min(step, 3.0 / float(direction.abs().max().clamp_min(1e-12)))
        while True:
            there = here + step * direction
            new, new_slope = loss(there)
            if new <= value + 1e-4 * step * decrease or step < 1e-6:
                break
            step *= 0.3
        if not new < value:
            break
        s, g = there - here, new_slope - slope
        if float(s @ g) > 1e-10 * float(g @ g):
            pairs = [*pairs[1 - KEPT :], (s, g)]
        arrived = value - new < least
        here, value, slope = there, new, new_slope
        if arrived:
            break
    return here
