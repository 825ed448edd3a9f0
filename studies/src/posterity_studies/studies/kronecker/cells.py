"""The cells: random sums of Kronecker products, and how far a single product stays from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import Kronecker, KroneckerSum, nearest, relative_error
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.power_method import factorwise_sum, power_history

JITTER = 1e-8
"""What the paper adds to A·Aᵀ to make it positive definite."""

GUARD = torch.finfo(torch.float32).eps
"""What the authors' script adds to the norm it divides by."""


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """One point of the study; `experiment` says of which kind."""
    experiments = {"decay": _decay, "terms": _terms, "iterations": _iterations}
    return experiments[arguments["experiment"]](arguments, generator)


def _decay(arguments: Arguments, generator: torch.Generator) -> Values:
    """s·L ⊗ s·R + √γ·I ⊗ √γ·I for every γ at once, each γ with draws of its own. Panels 1 to 3 of Figure 3."""
    size, scale, gammas, seeds = (arguments[name] for name in ("size", "scale", "gammas", "seeds"))
    fisher = Kronecker(*(scale * _positive_definite((len(gammas), seeds, size, size), generator) for _ in range(2)))
    roots = torch.tensor(gammas, dtype=torch.float64).sqrt()[:, None, None, None]
    decay = (roots * torch.eye(size, dtype=torch.float64)).expand(-1, seeds, -1, -1)
    return _errors(KroneckerSum([fisher, Kronecker(decay, decay)]), generator)


def _terms(arguments: Arguments, generator: torch.Generator) -> Values:
    """A sum of K independent products. Panel 4 of Figure 3."""
    size, terms, seeds = (arguments[name] for name in ("size", "terms", "seeds"))
    shape = (seeds, size, size)
    products = [Kronecker(*(_positive_definite(shape, generator) for _ in range(2))) for _ in range(terms)]
    return _errors(KroneckerSum(products), generator)


def _iterations(arguments: Arguments, generator: torch.Generator) -> Values:
    """The error by iteration of the convergence table, start included, from two kinds of start.

    "normal" starts are Algorithm 1's. "positive" starts, A·Aᵀ + I, are those of the authors' script, which also
    makes its terms `alike`: the k-th factor is Σ_{j≤k} j·X_j with independent X_j.
    """
    (out, inp), terms, seeds, steps = (arguments[name] for name in ("sizes", "terms", "seeds", "steps"))
    lefts, rights = (_positive_definite((terms, seeds, size, size), generator) for size in (out, inp))
    if arguments["alike"]:
        weights = torch.arange(1, terms + 1, dtype=torch.float64)[:, None, None, None]
        lefts, rights = (weights * lefts).cumsum(0), (weights * rights).cumsum(0)
    total = KroneckerSum([Kronecker(left, right) for left, right in zip(lefts, rights, strict=True)])
    normal = power_history(total, steps=steps - 1, tol=0, generator=generator).errors
    start = _positive_definite((seeds, out, out), generator) + torch.eye(out, dtype=torch.float64)
    positive = _power_errors(total, lefts, rights, start, steps)
    return {"normal": _summary(normal, over=-1), "positive": _summary(positive, over=-1)}


def _power_errors(
    total: KroneckerSum,
    lefts: Float[Tensor, "terms seeds out out"],
    rights: Float[Tensor, "terms seeds inp inp"],
    left: Float[Tensor, "seeds out out"],
    steps: int,
) -> Float[Tensor, "steps seeds"]:
    """Algorithm 1 from a given start: the error before the first iteration and after each one."""
    errors = []
    for _ in range(steps):
        left = left / torch.linalg.matrix_norm(left, keepdim=True)
        right = torch.einsum("ks,ksij->sij", torch.einsum("ksij,sij->ks", lefts, left), rights)
        errors.append(relative_error(total, Kronecker(left, right)))
        left = torch.einsum("ks,ksij->sij", torch.einsum("ksij,sij->ks", rights, right), lefts)
    return torch.stack(errors)


def _errors(total: KroneckerSum, generator: torch.Generator) -> Values:
    """Mean and spread over seeds of every method's error, as defined and as the authors' script measures it."""
    power = power_history(total, generator=generator)
    norm = _norm(total)
    # float32's epsilon in the denominator: nothing at norm 1, a factor of ten at norm 1e-8.
    guarded = norm / (norm + GUARD)
    values: dict[str, object] = {}
    for name, pair in (("power", power.pair), ("sum", factorwise_sum(total)), ("nearest", nearest(total))):
        error = relative_error(total, pair)
        values[name] = _summary(error, over=-1)
        if name != "nearest":
            values[f"{name}_guarded"] = _summary(error * guarded, over=-1)
    values["iterations"] = _rounded(power.iterations.double().mean(-1))
    return values


def _norm(total: KroneckerSum) -> Float[Tensor, "*batch"]:
    """The Frobenius norm of the sum: ‖Σ L_k ⊗ R_k‖² = Σ_jk <L_j, L_k> <R_j, R_k>."""
    squares = [
        (a.left * b.left).sum((-2, -1)) * (a.right * b.right).sum((-2, -1)) for a in total.terms for b in total.terms
    ]
    return torch.stack(torch.broadcast_tensors(*squares)).sum(0).sqrt()


def _positive_definite(shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, "..."]:
    """A·Aᵀ + 1e-8·I with standard normal A."""
    factor = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return factor @ factor.mT + JITTER * torch.eye(shape[-1], dtype=torch.float64)


def _summary(x: Float[Tensor, "..."], over: int) -> dict[str, float | list[float]]:
    return {"mean": _rounded(x.mean(over)), "std": _rounded(x.std(over))}


def _rounded(x: Float[Tensor, "..."], digits: int = 6) -> float | list[float]:
    """Significant digits enough to plot and compare, few enough to keep under version control."""
    if x.ndim:
        return [float(_rounded(entry)) for entry in x]  # type: ignore[arg-type]
    value = float(x)
    return round(value, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0.0
