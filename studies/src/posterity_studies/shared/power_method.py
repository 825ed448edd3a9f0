"""Baselines for `posterity.algebra.nearest`: Algorithm 1 of the paper (the power method), and summing factor by factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.algebra import Kronecker, KroneckerSum, relative_error
from posterity.algebra.base import standard_normal


@dataclass(frozen=True, eq=False)
class PowerHistory:
    """What a run of the power method left behind."""

    pair: Kronecker
    errors: Float[Tensor, "steps *batch"]
    """Relative error of the pair one would get by stopping now: first for the random start, then after each
    iteration. Batch elements that have converged repeat their last value."""
    iterations: Int[Tensor, "*batch"]


def power_method(
    total: KroneckerSum, steps: int = 100, tol: float = 1e-5, generator: torch.Generator | None = None
) -> Kronecker:
    """The nearest Kronecker product by power iteration, as published: n_max = 100, δ = 1e-5.

    O(steps · K · (out² + inp²)). The start is random, so the last digits depend on the generator;
    `nearest` gives the same pair exactly and faster. Batch elements stop one by one.
    """
    *_, (left, _) = _iterate(total, steps, tol, generator)
    return _pair(total, left)


def power_history(
    total: KroneckerSum, steps: int = 100, tol: float = 1e-5, generator: torch.Generator | None = None
) -> PowerHistory:
    """`power_method` with the error after every iteration."""
    errors, iterations = [], torch.zeros(total.batch, dtype=torch.int64, device=total.device)
    for left, moved in _iterate(total, steps, tol, generator):
        pair = _pair(total, left)
        errors.append(relative_error(total, pair))
        iterations += moved
    return PowerHistory(pair, torch.stack(errors), iterations)


def _iterate(
    total: KroneckerSum, steps: int, tol: float, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the normalised left factor and which batch elements still moved, start included."""
    lefts, rights = (_stack(total, side) for side in ("left", "right"))
    left = standard_normal(1, lefts, (*total.batch, lefts.shape[-1]), generator)[0]
    left = left / torch.linalg.vector_norm(left, dim=-1, keepdim=True)
    active = torch.ones(total.batch, dtype=torch.bool, device=left.device)
    yield left, torch.zeros_like(active)
    for _ in range(steps):
        right = _unit(_mixed(rights, _inner(lefts, left)))
        new = _unit(_mixed(lefts, _inner(rights, right)))
        step = torch.linalg.vector_norm(new - left, dim=-1)
        left = torch.where(active[..., None], new, left)
        yield left, active
        active = active & ~(step < tol)
        if not bool(active.any()):
            return


def _stack(total: KroneckerSum, side: str) -> Float[Tensor, "*batch terms entries"]:
    flat = [getattr(term, side).double().flatten(-2) for term in total.terms]
    return torch.stack([x.expand(*total.batch, x.shape[-1]) for x in flat], -2)


def _inner(stack: Float[Tensor, "*b k n"], x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b k"]:
    return (stack @ x[..., None]).squeeze(-1)


def _mixed(stack: Float[Tensor, "*b k n"], weights: Float[Tensor, "*b k"]) -> Float[Tensor, "*b n"]:
    return (weights[..., None, :] @ stack).squeeze(-2)


def _unit(x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def _pair(total: KroneckerSum, left: Float[Tensor, "*b n"]) -> Kronecker:
    """The left factor with the right one that is best for it: the algorithm's last line."""
    lefts, rights = (_stack(total, side) for side in ("left", "right"))
    right = _mixed(rights, _inner(lefts, left))
    out, inp = total.shape
    left, right = left.unflatten(-1, (out, out)), right.unflatten(-1, (inp, inp))
    # A start is random in all entries; what symmetric terms make of it is symmetric but for rounding.
    return Kronecker((left + left.mT) / 2, right)


def factorwise_sum(total: KroneckerSum) -> Kronecker:
    """(Σ L_k) ⊗ (Σ R_k): the rule of Ritter et al. (2018). The cross terms L_i ⊗ R_j are all counted in."""
    return Kronecker(sum(t.left for t in total.terms), sum(t.right for t in total.terms))  # type: ignore[arg-type]
