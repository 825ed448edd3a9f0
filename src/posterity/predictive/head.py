"""The predictor of a head on features: closed forms without draws, unknown inputs by the features themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from posterity import novelty
from posterity.blocks import Replica
from posterity.brief import brief
from posterity.curvature import Categorical, GaussianNoise, Likelihood
from posterity.data import Batch
from posterity.data.leave_out import STAYS, LeaveOut
from posterity.gaussian.card import KnownFeatures
from posterity.heads import ClassFit, ClassHead, HeadRecipe, NumberFit, NumberHead, Words, from_tensors, to_tensors
from posterity.heads.checks import checked_features
from posterity.kernel import Calibration, Link, normal_draws
from posterity.kernel.storing import Plain, Stored, above, below
from posterity.novelty import LeftOutInputs, Reference
from posterity.novelty.watching import FEATURES
from posterity.predictive.prediction import Moments, Prediction, categorical_entropy, from_moments
from posterity.predictive.predictor import Context, Predictor

OPEN = "open"
"""What it calls the share of its variance that a head's belief leaves open."""
LEFT_OUT: dict[type, tuple[str, ...]] = {
    ClassFit: ("judged", "left_out"),
    NumberFit: ("judged", "means", "variances", "log_densities"),
}
"""What fits say of examples that were left out."""


@dataclass(frozen=True, eq=False)
class HeadPredictor(Predictor, kind="features"):
    """A head, the known inputs that new ones are compared with, and what further labels are added to."""

    __repr__ = brief

    head: ClassHead | NumberHead
    reference: Reference
    source: ClassFit | NumberFit | None
    """The training examples, and what was said of them when they were left out; None where they were left out of a file."""
    leave_out: LeaveOut | None
    link: Link = "probit"

    @staticmethod
    def of(source: ClassFit | NumberFit, leave_out: LeaveOut) -> HeadPredictor:
        """The predictor of a fitted head."""
        return HeadPredictor(source.head, reference_of(source, leave_out), source, leave_out)

    @property
    def likelihood(self) -> Likelihood:  # type: ignore[override]
        return Categorical() if isinstance(self.head, ClassHead) else GaussianNoise(1 / self.head.noise)

    @property
    def needs_examples(self) -> bool:
        return self.source is not None

    def without_examples(self) -> tuple[HeadPredictor, float]:
        """The same head. It takes no further labels, and compares new inputs with no single known one."""
        if self.source is None or self.leave_out is None:
            return self, 0.0
        bare = reference_of(self.source, self.leave_out, keep_features=False)
        return replace(self, reference=bare, source=None, leave_out=None), 0.0

    def save(self) -> Stored:
        """The head; its examples are stored beside it."""
        source, known = self.source, novelty.to_known(self.reference)
        head, words = to_tensors(self.head)
        tensors = above("head", head) | above("known", known.tensors)
        outputs = self.head.classes if isinstance(self.head, ClassHead) else 1
        plain: Plain = {"kind": self.kind, "width": self.head.width, "outputs": outputs, "head": words}
        plain["known"] = dict(known.words)
        if source is not None and self.leave_out is not None:
            own = {"folds": self.leave_out.folds} | {name: getattr(source, name) for name in LEFT_OUT[type(source)]}
            if self.leave_out.groups is not None:
                own["groups"] = self.leave_out.groups
            tensors |= above("left out", own)
            if isinstance(source, ClassFit):
                plain["recipe"] = asdict(source.recipe)
                if source.words is not None:
                    plain["names"] = list(source.words.names)
                    tensors["words/directions"] = source.words.directions
        return plain, tensors

    @classmethod
    def load(cls, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Self:
        head, examples = from_tensors(below(tensors, "head"), plain["head"]), context.examples
        reference = novelty.from_known(KnownFeatures(below(tensors, "known"), plain["known"]))
        said: dict[str, Any] = dict(below(tensors, "left out"))
        if examples is None or not said:
            return cls(head, reference, None, None)
        leave_out = LeaveOut(said["folds"], said.pop("groups", None))
        x, y = checked_features(examples.whole.positional[0], head.width), examples.targets.flatten()
        if isinstance(head, NumberHead):
            said.pop("folds")
            return cls(head, reference, NumberFit(head, x, y, **said), leave_out)
        words = Words(tuple(plain["names"]), tensors["words/directions"]) if "names" in plain else None
        recipe: Plain = {name: tuple(v) if isinstance(v, list) else v for name, v in plain["recipe"].items()}
        source = ClassFit(head, x, y, **said, words=words, recipe=HeadRecipe(**recipe))
        return cls(head, reference, source, leave_out)

    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        """Log probabilities, which are certain: what they leave open is in them. Or a number with its variance."""
        return [self.moments_of(_rows(batch, self.head.width))]

    def moments_of(self, rows: Tensor) -> Moments:
        """Moments of the outputs at checked rows."""
        if isinstance(self.head, NumberHead):
            mean, variance = self.head.moments_of(rows)
            return Moments(1.0, mean[:, None], (variance - self.head.noise)[:, None, None], Calibration())
        found = self.head.log_probs_of(rows)
        return Moments(1.0, found, found.new_zeros(()).expand(*found.shape, found.shape[1]), Calibration())

    def predict(
        self,
        network: Replica,
        inputs: Sequence[Batch],
        *,
        samples: int = 100,
        generator: torch.Generator | None = None,
        keep_draws: bool = False,
        **_: Any,
    ) -> Prediction:
        """Probabilities, or numbers; the reference is its own.

        Of a logit's variance v labels would settle ½ Σ ln(1 + v p (1 − p)) nats (2nd order).
        """
        with torch.inference_mode(False), torch.no_grad():
            parts = [self._predicted(_rows(batch, self.head.width), samples, generator, keep_draws) for batch in inputs]
            joined = {
                name: torch.cat([getattr(part, name) for part in parts])
                for name in ("mean", "epistemic", "aleatoric", "logits", "unknown")
            }
            draws = torch.cat([part.draws for part in parts if part.draws is not None], 1) if keep_draws else None
            found = replace(parts[0], **joined, draws=draws)  # type: ignore[arg-type]
            return found.to(network.like.dtype)

    def _predicted(self, rows: Tensor, samples: int, generator: torch.Generator | None, keep_draws: bool) -> Prediction:
        moments, own, draws = self.moments_of(rows), self.scores(rows), None
        unknown = self.reference.unknown({FEATURES: rows}, own)
        belief = self.head.belief
        variance = belief.variance(belief.inputs(rows))
        if keep_draws:
            spread = variance[:, None, None] * torch.eye(moments.mean.shape[1], dtype=rows.dtype)
            draws = normal_draws(moments.mean, spread, samples, generator or torch.Generator().manual_seed(0))
        if isinstance(self.head, NumberHead):
            return replace(from_moments([moments], self.likelihood, self.link), unknown=unknown, draws=draws)
        probs = moments.mean.exp()
        total = categorical_entropy(probs)
        epistemic = torch.minimum(0.5 * (variance[:, None] * probs * (1 - probs)).log1p().sum(1), total)
        return Prediction(probs, epistemic, total - epistemic, self.likelihood, moments.mean, draws, unknown)

    def scores(self, rows: Tensor) -> dict[str, Tensor]:
        """What the head says of how unusual inputs are, as far as the reference takes it."""
        belief, found = self.head.belief, {}
        if "entropy" in self.reference.moments and isinstance(self.head, ClassHead):
            found["entropy"] = categorical_entropy(self.head.log_probs_of(rows).exp())
        # Files of older versions call it variance.
        names = {OPEN, novelty.VARIANCE} & set(self.reference.moments)
        return found | {name: belief.open(belief.inputs(rows)) for name in names}


def reference_of(source: ClassFit | NumberFit, leave_out: LeaveOut, *, keep_features: bool = True) -> Reference:
    """Known inputs, and their scores without their fold. Where no label can be left out, inputs still are."""
    x, belief, folds = source.features, source.head.belief, leave_out.folds
    judged = (folds != STAYS).nonzero().flatten()
    if len(judged) < 2:
        judged, folds = torch.arange(len(x)), torch.arange(len(x)) % novelty.left_out.FOLDS
    # Without their fold it would be larger than that of new inputs, which all examples settle.
    left_open = belief.open_without(belief.inputs(x), leave_out.groups)
    entropy = None
    if isinstance(source, ClassFit) and len(source.judged) == len(judged):
        entropy = categorical_entropy(source.left_out.exp())
    parts = []
    for fold in folds[judged].unique():
        of = (folds[judged] == fold).nonzero().flatten()
        out, kept = judged[of], folds != fold
        if not bool(kept.any()):
            continue
        own = {OPEN: left_open[out]}
        parts.append(
            LeftOutInputs(
                {FEATURES: x[kept]}, {FEATURES: x[out]}, own if entropy is None else own | {"entropy": entropy[of]}
            )
        )
    return Reference.of({FEATURES: x}, parts, keep_features=keep_features)


def _rows(batch: Batch, width: int) -> Tensor:
    return checked_features(batch.positional[0] if batch.positional else next(iter(batch.named.values())), width)


class HeadModule(nn.Module):
    """Features → (probabilities, unknown score), or of numbers (mean, variance, unknown score)."""

    def __init__(self, predictor: HeadPredictor, unknown: bool) -> None:
        super().__init__()
        self.predictor, self.unknown = predictor, unknown

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """Predictions as `Fit.predict` makes them, in float32."""
        rows, head = features.double(), self.predictor.head
        if isinstance(head, ClassHead):
            found: tuple[Tensor, ...] = (head.log_probs_of(rows).exp(),)
        else:
            found = tuple(x[:, None] for x in head.moments_of(rows))
        if self.unknown:
            found = (*found, self.predictor.reference.unknown({FEATURES: rows}, self.predictor.scores(rows)))
        return tuple(x.float() for x in found)
