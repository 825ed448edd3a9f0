"""The methods of bounding a risk: each uses the same examples, says of which predictor it speaks, and spends the same δ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks import Block, evaluating, write_blocks
from posterity.curvature import Likelihood
from posterity.curvature.batches import Batch
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import Spending, clopper_pearson, excess_bound, klinv
from posterity.pacbayes.certificate import PREDICTORS
from posterity.pacbayes.gibbs import Portion, drawn_outputs, replicates, zero_one

Method = Literal["draws", "excess", "prior", "mean"]
FAMILY: tuple[Method, ...] = ("draws", "excess", "prior", "mean")
"""Networks drawn from the posterior (two rules), networks drawn from the prior, the network at the prior's mean."""

OF_POSTERIOR, OF_PRIOR, AT_MEAN, KEPT, _ = PREDICTORS
FEW = 2_000
"""Examples up to which a hundred draws each are cheap, and whole networks drawn one by one."""


@dataclass(frozen=True, eq=False)
class Case:
    """All that a method needs."""

    model: nn.Module
    blocks: dict[str, Block]
    posterior: Gaussian
    prior: Gaussian
    kl: float
    n: int
    """Distinct examples."""
    spending: Spending
    likelihood: Likelihood
    passes: int | None
    batch_size: int
    generator: torch.Generator | None
    progress: bool


@dataclass(frozen=True)
class Found:
    """A bound, and the fields of the certificate that it is made of."""

    bound: float
    fields: dict[str, Any] = field(default_factory=dict)


def bounded(method: Method, case: Case, readings: list[list[Batch]]) -> Found:
    """The bound by one method: where some examples are copies, the larger of both readings."""
    match method:
        case "draws" if case.kl > 0:
            found = [_by_draws(case, held) for held in readings]
        case "draws" | "prior":
            found = [_drawn_once(case, held) for held in readings]
        case "excess":
            found = [_by_excess(case, held) for held in readings]
        case "mean":
            found = [_at_mean(case, held) for held in readings]
        case _:
            raise ValueError(f"a method is one of {FAMILY}, not {method!r}")
    return max(found, key=lambda one: one.bound)


def binomial(errors: float, examples: int, n: int, delta: float) -> tuple[int, float]:
    """Errors as a whole number of n distinct examples, rounded up, and the bound by Clopper and Pearson."""
    counted = errors if examples == n else errors / examples * n
    whole = min(n, math.ceil(counted - 1e-9))
    return whole, clopper_pearson(whole, n, delta)


def _by_draws(case: Case, held: list[Batch]) -> Found:
    """klinv of the draws' error, taken from above, at (KL + ln(2K√n/δ))/n."""
    found = replicates(
        case.model,
        case.posterior,
        held,
        case.likelihood,
        passes=_passes(case, held),
        batch_size=case.batch_size,
        generator=case.generator,
        progress=case.progress,
    )
    upper = klinv(found.error, math.log(1 / case.spending.draws) / found.count)
    bound = klinv(upper, (case.kl + math.log(2 * math.sqrt(case.n) / case.spending.bound)) / case.n)
    return Found(
        bound,
        {
            "rule": "klinv",
            "predictor": OF_POSTERIOR,
            "gibbs": found.error,
            "upper": upper,
            "replicates": found.count,
            "kl": case.kl,
            "drawn_per": found.drawn_per,
        },
    )


def _passes(case: Case, held: list[Batch]) -> int:
    if case.passes is not None:
        return case.passes
    return 100 if sum(batch.count for batch in held) <= FEW else 10


def _drawn_once(case: Case, held: list[Batch]) -> Found:
    """One draw from the prior for each example: errors are throws of one coin, and there is nothing to pay for but that."""
    wrong = drawn_errors(case, held)
    if wrong is None:
        found = _by_draws(replace(case, posterior=case.prior, kl=0.0), held)
        return Found(found.bound, found.fields | {"predictor": OF_POSTERIOR if case.kl == 0 else OF_PRIOR})
    errors, bound = binomial(wrong, sum(batch.count for batch in held), case.n, case.spending.each)
    return _plain(bound, errors, case.n, OF_POSTERIOR if case.kl == 0 else OF_PRIOR)


def drawn_errors(case: Case, held: list[Batch]) -> float | None:
    """How many examples are wrong, each met by a network drawn from the prior for it alone.

    A network that can only be drawn as a whole is drawn for batches of one example; None, where those are too many.
    """
    wrong = 0.0
    for portion in _draws(case, held):
        if not portion.per_example:
            break
        wrong += float(zero_one(case.likelihood, portion.outputs, portion.targets).sum())
    else:
        return wrong
    if case.n > FEW:
        return None
    singles = [batch.rows(torch.tensor([i])) for batch in held for i in range(batch.count)]
    found = (zero_one(case.likelihood, portion.outputs, portion.targets) for portion in _draws(case, singles))
    return float(torch.cat(list(found)).sum())


def _draws(case: Case, held: list[Batch]) -> Iterator[Portion]:
    return drawn_outputs(
        case.model,
        case.prior,
        held,
        passes=1,
        batch_size=case.batch_size,
        generator=case.generator,
        progress=case.progress,
    )


@torch.no_grad()
def mean_errors(case: Case, held: list[Batch]) -> Tensor:
    """Which examples the network at the prior's mean classifies wrongly."""
    like = next(case.model.parameters())
    weights = write_blocks(case.blocks, {name: case.prior.mean[name].to(like) for name in case.blocks})
    with evaluating(case.model):
        moved = (batch.to(like.device) for batch in held)
        return torch.cat([zero_one(case.likelihood, b.outputs(case.model, weights), b.targets).cpu() for b in moved])


def _at_mean(case: Case, held: list[Batch]) -> Found:
    wrong = mean_errors(case, held)
    errors, bound = binomial(float(wrong.sum()), len(wrong), case.n, case.spending.each)
    return _plain(bound, errors, case.n, AT_MEAN)


def _plain(bound: float, errors: int, n: int, predictor: str) -> Found:
    error = errors / n
    return Found(bound, {"rule": "binomial", "predictor": predictor, "errors": errors, "gibbs": error, "upper": error})


def _by_excess(case: Case, held: list[Batch]) -> Found:
    """The error of the network at the prior's mean, and how much more draws from the posterior err (split-kl)."""
    passes = _passes(case, held)
    wrong = mean_errors(case, held)
    errors, _ = binomial(float(wrong.sum()), len(wrong), case.n, case.spending.each)
    no_less = more = total = drawn = 0.0
    per_example = True
    for portion in drawn_outputs(
        case.model,
        case.posterior,
        held,
        passes=passes,
        batch_size=case.batch_size,
        generator=case.generator,
        progress=case.progress,
    ):
        per_example = portion.per_example
        mean = mean_errors(case, [portion.batch]).repeat_interleave(portion.repeats)
        excess = zero_one(case.likelihood, portion.outputs, portion.targets).cpu() - mean
        no_less += float((excess >= 0).sum())
        more += float((excess > 0).sum())
        drawn += float(excess.sum())
        total += len(excess)
    count = int(total) if per_example else int(total) // max(batch.count for batch in held)
    shares = (no_less / total, more / total)
    spent = case.spending
    bound = excess_bound(errors, shares, case.n, count, case.kl, spent.bound, spent.draws)
    gibbs = min(1.0, max(0.0, float(wrong.mean()) + drawn / total))
    return Found(
        bound,
        {
            "rule": "excess",
            "predictor": OF_POSTERIOR,
            "errors": errors,
            "shares": shares,
            "gibbs": gibbs,
            "upper": gibbs,
            "replicates": count,
            "kl": case.kl,
            "drawn_per": "example" if per_example else "batch",
        },
    )
