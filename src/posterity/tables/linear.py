"""The exact heads of `posterity.heads` on the inputs themselves."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from posterity.heads import ClassHead, NumberHead, classify, regress
from posterity.kernel.stacking import log_scores
from posterity.tables.model import ClassModel, NumberModel, TableFit, placed


@dataclass(frozen=True, eq=False)
class LinearClasses(ClassModel):
    """Softmax regressions and discriminants, averaged by what was left out."""

    head: ClassHead

    def logits(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m classes"]:
        return self.head.log_probs_of(x)


@dataclass(frozen=True, eq=False)
class LinearNumbers(NumberModel):
    """Bayesian linear regressions of several strengths."""

    head: NumberHead

    def numbers(self, x: Float[Tensor, "m d"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"], Float[Tensor, " m"]]:
        mean, variance = self.head.moments_of(x)
        own = (variance - self.head.noise).clamp_min(0)
        return mean, own, variance - own


def fit_linear(x: Float[Tensor, "n d"], y: Tensor, folds: Int[Tensor, " n"], classes: int) -> TableFit:
    """The head for numbers (no `classes`) or for classes."""
    if not classes:
        numbers = regress(x, y, folds)
        return TableFit.of_numbers(LinearNumbers(numbers.head), y, numbers.judged, (numbers.means, numbers.variances))
    found = classify(x, y, folds, classes=classes)
    return TableFit(
        LinearClasses(found.head), placed(log_scores(found.left_out, y[found.judged]), found.judged, len(y))
    )
