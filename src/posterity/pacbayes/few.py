"""Certificates for some fifty examples, of a predictor that has learned from them: the tightest of several ways, paid for.

    "mean"     the network at the prior's mean: nothing is learned
    "picked"   Pick-to-Learn: from the prior's mean on, the example that it likes least is added to those that it learns from,
               until no other is an error. What is learned from k of n examples is bounded by the n − k others.
    "split"    learned from a part in a random order, tested by the rest
    "folds"    one of several fits, each learned without a part that tests it
    "prior"    a network drawn at random from the prior

Two rules bound what is picked, each with half of δ. `compression_bound` holds for every set that could have been picked, whatever
the errors of the rest: at each step there is a bound, and the least is taken. `preferent_bound` needs all others to be right, and
is tighter then: the most disliked example is picked first, so that few sets could have been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posterity.blocks import evaluating, write_blocks
from posterity.checks import admitted
from posterity.curvature import Categorical
from posterity.data.batches import Batch
from posterity.errors import NoData
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import Spending, compression_bound, preferent_bound
from posterity.pacbayes.certificate import FOLDS, OF_PRIOR, PART, PICKED, Certificate
from posterity.pacbayes.certify import rebuilt, written
from posterity.pacbayes.examples import CertificateData, error_by_unit
from posterity.pacbayes.gibbs import drawn_network
from posterity.pacbayes.methods import BoundResult, Case, bounded, by_parts, counted_errors
from posterity.pacbayes.refusals import checked

Predict = Callable[[Tensor], Float[Tensor, "n classes"]]
"""From inputs to the probabilities of classes."""
Learner = Callable[[Tensor, Tensor], Predict]
"""From inputs and labels to what predicts: the same for the same rows, whatever else there is."""
Way = Literal["mean", "split", "picked", "folds", "prior"]
PAYS: dict[Way, int] = {"mean": 2, "split": 4, "picked": 8, "folds": 16, "prior": 16}
"""What δ is divided by for each way; declared here, before any data. The parts sum to one."""
MOST_PICKED = 0.4
"""A share of the examples: with more the bound is near one half even without an error among the others."""


@dataclass(frozen=True, eq=False)
class CertifiedPredictor:
    """What was certified, and the certificate. Of several `predictors` one is drawn again for every input."""

    predictors: tuple[Predict, ...]
    certificate: Certificate

    def predict(self, x: Tensor, generator: torch.Generator | None = None) -> Int[Tensor, " n"]:
        """The classes of some inputs, by the predictor that the certificate speaks of."""
        classes = torch.stack([predict(x).argmax(1).cpu() for predict in self.predictors])
        return classes[torch.randint(len(classes), (len(x),), generator=generator), torch.arange(len(x))]


def certify_few(
    model: nn.Module,
    prior: Gaussian,
    data: tuple[Tensor, Tensor],
    learner: Learner,
    confidence: float = 0.95,
    *,
    ways: Sequence[Way] = tuple(PAYS),
    groups: Tensor | None = None,
    share: float = 0.5,
    folds: int = 2,
    grid: int = 1,
    vouched: str | None = None,
    generator: torch.Generator | None = None,
) -> CertifiedPredictor:
    """Certify few examples in each of the `ways` above, and take the tightest. The choice is paid for: see `PAYS`.

    Args:
        model: the network's architecture; its own weights do not matter.
        prior: a Gaussian that has not seen the data.
        data: inputs and classes.
        learner: makes a predictor of some of the examples. It must see nothing but what it is given, and be the same for the
            same rows: no one can check that.
        confidence: with which the bound holds.
        ways: to take the tightest of.
        groups: what belongs together, as for `pt.certify`.
        share: of the examples that "split" learns from.
        folds: of "folds".
        grid: how many priors the choice was from, beyond what the library knows of.
        vouched: a text by which you answer for a prior of unknown past.
        generator: of the split and the draws; by default its seed follows from prior and examples.
    Returns:
        A `CertifiedPredictor`: what predicts, and its certificate.
    """
    if not ways or (odd := set(ways) - set(PAYS)):
        raise ValueError(f"ways are some of {tuple(PAYS)}, not {tuple(ways) if not ways else odd}")
    examples = CertificateData.of(admitted(model, data).data, groups=groups)
    if examples.n < 4:
        raise NoData(
            f"{examples.n} independent {'groups' if examples.grouped else 'examples'} are too few: at least 4."
        )
    found = checked(model, prior, prior, examples, Spending(1 - confidence), grid, vouched, generator)
    prior = rebuilt(prior)
    few = _LearnerRuns(examples, learner)
    dealt = torch.randperm(examples.n, generator=found.generator, device=found.generator.device).cpu()
    case = Case.at_prior(model, found, prior, examples.n, Categorical(), generator=found.generator)
    offers: list[tuple[BoundResult, Case, tuple[Predict, ...]]] = []
    for way in ways:
        paid = replace(case, spending=found.spending.paying("ways", 1 if len(ways) == 1 else PAYS[way]))
        match way:
            case "mean":
                offers.append((bounded("mean", paid, examples.readings()), paid, (_at_mean(paid),)))
            case "picked":
                offers += list(_picked(few, paid))
            case "split":
                at = max(1, round(share * few.n))
                offers.append(_tested(few, paid, [(dealt[:at], dealt[at:])], PART))
            case "folds":
                parts = dealt.tensor_split(folds)
                pairs = [(torch.cat([p for p in parts if p is not part]), part) for part in parts]
                offers.append(_tested(few, paid, pairs, FOLDS))
            case "prior":
                drawn = bounded("prior", paid, examples.readings())
                drawn = BoundResult(drawn.bound, drawn.fields | {"predictor": OF_PRIOR})
                offers.append((drawn, paid, (_drawn(paid),)))
    best, paid, predictors = min(offers, key=lambda one: one[0].bound)
    beside = bounded("mean", case, examples.readings())
    notes = (*found.notes, "that the learner saw nothing but the rows it was given cannot be seen: you answer for it")
    # Where copies were found, fits are tested by families as groups are.
    whole = examples if best.fields["rule"] == "binomial" else replace(examples, grouped=few.grouped)
    return CertifiedPredictor(predictors, written(best, paid, whole, beside, notes, confidence))


class _LearnerRuns:
    """The examples as units: what is picked, dealt and tested together."""

    def __init__(self, examples: CertificateData, learner: Learner) -> None:
        whole = Batch.joined(examples.batches)
        self.x, self.y, self.units, self.n = whole.positional[0], whole.targets.cpu(), examples.units, examples.n
        self.given, self.grouped, self.learner = (
            examples.grouped,
            examples.n < examples.count or examples.grouped,
            learner,
        )

    def learned(self, units: Tensor) -> Predict:
        """From the examples of some units, in the examples' own order."""
        rows = torch.isin(self.units, units).nonzero()[:, 0]
        return self.learner(self.x[rows], self.y[rows].to(self.x.device))

    def wrong(self, predict: Predict) -> tuple[Tensor, Tensor]:
        """For each example the probability of its own class, and whether it is wrong. What is no number is."""
        probs = predict(self.x).detach().cpu().double()
        fine = probs.isfinite().all(1)
        own = probs[torch.arange(len(probs)), self.y].where(fine, torch.zeros(()).double())
        return own, ((probs.argmax(1) != self.y) | ~fine).double()

    def liked(self, predict: Predict) -> Tensor:
        """For each unit the least probability of an example's own class."""
        return torch.ones(self.n).double().scatter_reduce(0, self.units, self.wrong(predict)[0], "amin")

    def error(self, predict: Predict, units: Tensor) -> float:
        """The mean error of some units; where copies were found, of all their examples if that is more."""
        rows = torch.isin(self.units, units)
        return error_by_unit(self.wrong(predict)[1][rows], self.units[rows], self.given)[0]


def _picked(few: _LearnerRuns, case: Case) -> Iterator[tuple[BoundResult, Case, tuple[Predict, ...]]]:
    """What is learned from more and more examples that were picked, beginning with the prior's mean: a bound for each."""
    case = replace(case, spending=case.spending.paying("rules", 2))
    predict, chosen = _at_mean(case), torch.empty(0, dtype=torch.int64)
    for k in range(1, max(2, int(MOST_PICKED * few.n) + 1)):
        rest = torch.ones(few.n, dtype=torch.bool)
        rest[chosen] = False
        others = rest.nonzero()[:, 0]
        chosen = torch.cat((chosen, others[few.liked(predict)[others].argmin()][None]))
        others = others[others != chosen[-1]]
        predict = few.learned(chosen)
        error = few.error(predict, others)
        errors = counted_errors(error, len(others), few.grouped)
        options = {"picked": k, "predictor": PICKED, "errors": errors, "gibbs": error, "upper": error}
        bound = compression_bound(errors, few.n, k, case.spending.each, grouped=few.grouped)
        yield BoundResult(bound, options | {"rule": "compression"}), case, (predict,)
        if not errors:
            yield (
                BoundResult(preferent_bound(k, few.n, case.spending.each), options | {"rule": "preferent"}),
                case,
                (predict,),
            )
            return


def _tested(
    few: _LearnerRuns, case: Case, parts: Sequence[tuple[Tensor, Tensor]], predictor: str
) -> tuple[BoundResult, Case, tuple[Predict, ...]]:
    """What is learned from the first units of each pair, tested by the second."""
    fits = tuple(few.learned(first) for first, _ in parts)
    errors = [few.error(fit, rest) for fit, (_, rest) in zip(fits, parts, strict=True)]
    counts = [
        (counted_errors(e, len(rest), few.grouped), len(rest)) for e, (_, rest) in zip(errors, parts, strict=True)
    ]
    return by_parts(counts, case, few.grouped, predictor), case, fits


def _at_mean(case: Case) -> Predict:
    like = next(case.model.parameters())
    weights = write_blocks(case.blocks, {name: case.prior.mean[name].to(like) for name in case.blocks})

    @torch.no_grad()
    def predict(x: Tensor) -> Tensor:
        with evaluating(case.model):
            return Batch((x.to(like.device),), {}, torch.zeros(len(x))).outputs(case.model, weights).softmax(-1)

    return predict


def _drawn(case: Case) -> Predict:
    @torch.no_grad()
    def predict(x: Tensor) -> Tensor:
        network, like = drawn_network(case.model, case.prior), next(case.model.parameters())
        with evaluating(case.model):
            rows = (Batch((row[None].to(like.device),), {}, torch.zeros(1)) for row in x)
            return torch.cat([network.whole(row) for row in rows]).softmax(-1)

    return predict
