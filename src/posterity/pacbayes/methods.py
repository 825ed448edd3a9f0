"""The methods of bounding a risk: each uses the same examples, says of which predictor it speaks, and spends the same δ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks import Block, evaluating, write_blocks
from posterity.curvature import Likelihood
from posterity.data.batches import Batch
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import Spending, count_bound, excess_bound, folds_bound, klinv
from posterity.pacbayes.certificate import AT_MEAN, OF_POSTERIOR, OF_PRIOR
from posterity.pacbayes.examples import Weighting
from posterity.pacbayes.gibbs import Portion, Weighted, counted, drawn_outputs, replicates, zero_one
from posterity.pacbayes.refusals import CertificateTerms

Method = Literal["draws", "excess", "prior", "mean"]
FAMILY: tuple[Method, ...] = ("draws", "excess", "prior", "mean")
"""Networks drawn from the posterior (two rules), networks drawn from the prior, the network at the prior's mean."""

FEW = 2_000
"""Examples up to which a hundred draws each are cheap, and whole networks drawn one by one."""


@dataclass(frozen=True, eq=False)
class Case:
    """All that a method needs."""

    model: nn.Module
    blocks: dict[str, Block]
    posterior: Gaussian
    prior: Gaussian
    n: int
    """Independent units: groups, or distinct examples."""
    spending: Spending
    likelihood: Likelihood
    kl: float = 0.0
    passes: int | None = None
    batch_size: int = 256
    generator: torch.Generator | None = None
    progress: bool = False

    @classmethod
    def at_prior(
        cls, model: nn.Module, found: CertificateTerms, prior: Gaussian, n: int, likelihood: Likelihood, **options: Any
    ) -> Case:
        """Where the posterior is the prior."""
        return cls(model, found.blocks, prior, prior, n, found.spending, likelihood, **options)


@dataclass(frozen=True)
class BoundResult:
    """A bound, and the fields of the certificate that it is made of."""

    bound: float
    fields: dict[str, Any] = field(default_factory=dict)


def bounded(method: Method, case: Case, readings: list[Weighting]) -> BoundResult:
    """The bound by one method: where some examples are copies, the larger of both readings."""
    match method:
        case "draws" if case.kl > 0:
            found = [_by_draws(case, reading) for reading in readings]
        case "draws" | "prior":
            found = [_drawn_once(case, reading) for reading in readings]
        case "excess":
            found = [_by_excess(case, reading) for reading in readings]
        case "mean":
            found = [_at_mean(case, reading) for reading in readings]
        case _:
            raise ValueError(f"a method is one of {FAMILY}, not {method!r}")
    return max(found, key=lambda one: one.bound)


def counted_errors(error: float, n: int, grouped: bool) -> float:
    """A mean error as the sum over n units: whole errors, rounded up, where a unit is one example."""
    return error * n if grouped else min(n, math.ceil(error * n - 1e-9))


def by_parts(counts: Sequence[tuple[float, int]], case: Case, grouped: bool, predictor: str) -> BoundResult:
    """Fits, one of which is drawn for every input: each by the errors of units that it has not learned from."""
    error = sum(errors / n for errors, n in counts) / len(counts)
    fields = {"rule": "folds", "predictor": predictor, "gibbs": error, "upper": error, "folds": tuple(counts)}
    errors = sum(errors for errors, _ in counts)
    return BoundResult(folds_bound(counts, case.spending.each, grouped=grouped), fields | {"errors": errors})


def _by_draws(case: Case, reading: Weighting) -> BoundResult:
    """klinv of the draws' error, taken from above, at (KL + ln(2K√n/δ))/n."""
    found = replicates(
        case.model,
        case.posterior,
        reading.pieces(),
        case.likelihood,
        passes=_passes(case, reading),
        batch_size=case.batch_size,
        generator=case.generator,
        progress=case.progress,
    )
    upper = klinv(found.error, math.log(1 / case.spending.draws) / found.count)
    bound = klinv(upper, (case.kl + math.log(2 * math.sqrt(case.n) / case.spending.bound)) / case.n)
    return BoundResult(
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


def _passes(case: Case, reading: Weighting) -> int:
    if case.passes is not None:
        return case.passes
    return 100 if len(reading.weights) <= FEW else 10


def _drawn_once(case: Case, reading: Weighting) -> BoundResult:
    """One draw from the prior for each example: errors are throws of one coin, and there is nothing to pay for but that."""
    error = drawn_error(case, reading)
    predictor = OF_POSTERIOR if case.kl == 0 else OF_PRIOR
    if error is None:
        found = _by_draws(replace(case, posterior=case.prior, kl=0.0), reading)
        return BoundResult(found.bound, found.fields | {"predictor": predictor})
    return plain(error, case, reading.grouped, predictor)


def drawn_error(case: Case, reading: Weighting) -> float | None:
    """The error of examples that are each met by a network drawn from the prior for them alone.

    A network that can only be drawn as a whole is drawn for batches of one example; None, where those are too many.
    """
    error = 0.0
    for portion in _draws(case, reading.pieces()):
        if not portion.per_example:
            break
        error += portion.mean(zero_one(case.likelihood, portion.outputs, portion.targets))
    else:
        return error
    if len(reading.weights) > FEW:
        return None
    singles = [(b.rows(torch.tensor([i])), w[i : i + 1]) for b, w in reading.pieces() for i in range(b.count)]
    return sum(p.mean(zero_one(case.likelihood, p.outputs, p.targets)) for p in _draws(case, singles))


def _draws(case: Case, held: Weighted) -> Iterator[Portion]:
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
def mean_errors(case: Case, held: Sequence[Batch]) -> Tensor:
    """Errors of the network at the prior's mean, one for each example."""
    like = next(case.model.parameters())
    weights = write_blocks(case.blocks, {name: case.prior.mean[name].to(like) for name in case.blocks})
    with evaluating(case.model):
        moved = (batch.to(like.device) for batch in held)
        return torch.cat([zero_one(case.likelihood, b.outputs(case.model, weights), b.targets).cpu() for b in moved])


def _at_mean(case: Case, reading: Weighting) -> BoundResult:
    return plain(reading.mean(mean_errors(case, reading.batches)), case, reading.grouped, AT_MEAN)


def plain(error: float, case: Case, grouped: bool, predictor: str) -> BoundResult:
    """The bound of a predictor that has met each example once."""
    errors = counted_errors(error, case.n, grouped)
    error = errors / case.n
    bound = count_bound(error, case.n, case.spending.each, grouped=grouped)
    return BoundResult(
        bound, {"rule": "binomial", "predictor": predictor, "errors": errors, "gibbs": error, "upper": error}
    )


def _by_excess(case: Case, reading: Weighting) -> BoundResult:
    """The error of the network at the prior's mean, and how much more draws from the posterior err (split-kl)."""
    passes = _passes(case, reading)
    wrong = reading.mean(mean_errors(case, reading.batches))
    errors = counted_errors(wrong, case.n, reading.grouped)
    no_less = more = drawn = 0.0
    per_example = True
    for portion in drawn_outputs(
        case.model,
        case.posterior,
        reading.pieces(),
        passes=passes,
        batch_size=case.batch_size,
        generator=case.generator,
        progress=case.progress,
    ):
        per_example = portion.per_example
        mean = mean_errors(case, [portion.batch]).repeat_interleave(portion.repeats)
        excess = zero_one(case.likelihood, portion.outputs, portion.targets).cpu() - mean
        no_less += portion.mean((excess >= 0).double())
        more += portion.mean((excess > 0).double())
        drawn += portion.mean(excess)
    count = counted(reading.pieces(), passes, per_example)
    shares = (min(1.0, no_less), min(1.0, more))
    spent = case.spending
    bound = excess_bound(
        errors / case.n, shares, case.n, count, case.kl, spent.bound, spent.draws, grouped=reading.grouped
    )
    gibbs = min(1.0, max(0.0, wrong + drawn))
    return BoundResult(
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
