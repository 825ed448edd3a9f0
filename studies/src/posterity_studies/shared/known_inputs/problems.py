"""Known, new and unknown inputs as a network sees them: from scratch, set aside, after a source, frozen features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from posterity.data.leave_out import LeaveOut
from posterity.novelty import LeftOutInputs, RelativeVariance, by_folds, energy, entropy
from posterity_studies.shared.known_inputs.networks import seen, trained

See = Callable[[Tensor], "LayerInputs"]

FOLDS = 4
"""Networks that leave a part out."""
ROW_FOLDS = 10
"""Parts of frozen features where they are left out at random."""


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """Inputs by layer, and the outputs."""

    features: Mapping[str, Tensor]
    logits: Tensor

    @property
    def head(self) -> Tensor:
        """What the last layer is given."""
        return list(self.features.values())[-1].double()

    def rows(self, index: Tensor) -> LayerInputs:
        return LayerInputs({name: x[index] for name, x in self.features.items()}, self.logits[index])

    def moments(self, known: Tensor) -> dict[str, Tensor]:
        """The predictor's own scores; variance by the features of known inputs at the head."""
        logits = self.logits.double()
        return {
            "entropy": entropy(logits.softmax(-1)),
            "energy": energy(logits),
            "variance": RelativeVariance.of(known)(self.head),
        }


@dataclass(frozen=True, eq=False)
class LeftOutLabels:
    """What else is known of inputs that were left out: their classes and outputs, and the classes they are compared with."""

    known: Tensor
    labels: Tensor
    logits: Tensor


@dataclass(frozen=True, eq=False)
class Problem:
    """What is known, what was left out of it, new inputs of the same kind, and inputs of others by name."""

    known: LayerInputs
    labels: Tensor
    left_out: list[LeftOutInputs]
    new: LayerInputs
    others: Mapping[str, LayerInputs]
    accuracy: float
    source: Mapping[str, Tensor] | None = None
    left_out_labels: Sequence[LeftOutLabels] = ()


def _left_out(known: LayerInputs, out: LayerInputs) -> LeftOutInputs:
    return LeftOutInputs(known.features, out.features, out.moments(known.head))


Data = tuple[Tensor, Tensor]


def from_scratch(kind: str, train: Data, new: Data, others: Mapping[str, Tensor], seed: int, steps: int) -> Problem:
    """A network trained on all, and one for each fold, which sees its own fold as new inputs."""
    (x, y), classes = train, int(train[1].max()) + 1
    model = trained(kind, x, y, classes, seed, steps)
    folds = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)) % FOLDS
    left_out, labels = [], []
    for fold in range(FOLDS):
        kept = folds != fold
        part = LayerInputs(*seen(trained(kind, x[kept], y[kept], classes, seed + 100 * fold, steps), x))
        left_out.append(_left_out(part.rows(kept), part.rows(~kept)))
        labels.append(LeftOutLabels(y[kept], y[~kept], part.logits[~kept]))
    made = _problem(LayerInputs(*seen(model, x)), y, left_out, lambda z: LayerInputs(*seen(model, z)), new, others)
    return replace(made, left_out_labels=labels)


def set_aside(kind: str, train: Data, new: Data, others: Mapping[str, Tensor], seed: int, steps: int) -> Problem:
    """A network trained on all but 400 examples, which it sees as new inputs."""
    x, y = train
    aside = torch.arange(len(x)) < 400
    both = torch.cat((x[~aside], x[~aside].flip(-1))), y[~aside].repeat(2)
    model = trained(kind, *both, int(y.max()) + 1, seed, steps)
    every = LayerInputs(*seen(model, x))
    known = every.rows(~aside)
    return _problem(
        known, y[~aside], [_left_out(known, every.rows(aside))], lambda z: LayerInputs(*seen(model, z)), new, others
    )


def after_source(
    kind: str,
    source: Data,
    train: Data,
    new: Data,
    others: Mapping[str, Tensor],
    seed: int,
    steps: int,
    every_class: bool = False,
) -> Problem:
    """The source's network as it is, with a new head on what its own last layer was given: leaving rows out is honest."""
    model = trained(kind, *source, int(source[1].max()) + 1, seed, steps)
    features = {
        name: seen(model, z)[0]
        for name, z in {"train": train[0], "new": new[0], "source": source[0][:512], **others}.items()
    }
    return _frozen(features, train[1], new[1], list(others), features["source"], every_class)


def frozen(train: Data, new: Data, others: Mapping[str, Tensor], every_class: bool = False) -> Problem:
    """Frozen features with a head; rows are left out at random, or one of every class at a time."""
    features = {name: {"head": z.float()} for name, z in {"train": train[0], "new": new[0], **others}.items()}
    return _frozen(features, train[1], new[1], list(others), None, every_class)


def _frozen(
    features: Mapping[str, Mapping[str, Tensor]],
    y: Tensor,
    truth: Tensor,
    others: list[str],
    source: Mapping[str, Tensor] | None,
    every_class: bool,
) -> Problem:
    last = {name: list(x.values())[-1].double() for name, x in features.items()}
    at_random = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)) % min(ROW_FOLDS, len(y))
    folds = LeaveOut.of(y).folds if every_class else at_random
    classes = int(y.max()) + 1
    logits = torch.empty(len(y), classes, dtype=torch.float64)
    variance = torch.empty(len(y), dtype=torch.float64)
    for fold in folds.unique():
        out = folds == fold
        logits[out] = _head(last["train"][~out], y[~out], classes, last["train"][out])
        variance[out] = RelativeVariance.of(last["train"][~out])(last["train"][out])
    all_seen = {
        name: LayerInputs(features[name], _head(last["train"], y, classes, last[name]))
        for name in ("train", "new", *others)
    }
    known = all_seen["train"]
    moments = {**LayerInputs(known.features, logits).moments(last["train"][:1]), "variance": variance}
    return Problem(
        known, y, by_folds(known.features, moments, folds), all_seen["new"], {name: all_seen[name] for name in others},
        float((all_seen["new"].logits.argmax(1) == truth).double().mean()), source,
        [LeftOutLabels(y[folds != f], y[folds == f], logits[folds == f]) for f in folds.unique()],
    )  # fmt: skip


def _head(rows: Tensor, y: Tensor, classes: int, new: Tensor) -> Tensor:
    """Logits of a softmax regression with a quadratic penalty, on features of mean squared length 16."""
    size = rows.square().sum(1).mean().sqrt().clamp_min(1e-30) / 4
    a, b = (torch.cat((x / size, torch.ones(len(x), 1, dtype=x.dtype)), 1) for x in (rows, new))
    weights = torch.zeros(a.shape[1], classes, dtype=a.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=40)

    def objective() -> Tensor:
        optimiser.zero_grad()
        loss = cross_entropy(a @ weights, y, reduction="sum") + 0.05 * weights.square().sum()
        loss.backward()
        return loss

    optimiser.step(objective)
    return b @ weights.detach()


def _problem(
    known: LayerInputs, y: Tensor, left_out: list[LeftOutInputs], see: See, new: Data, others: Mapping[str, Tensor]
) -> Problem:
    found = see(new[0])
    accuracy = float((found.logits.argmax(1) == new[1]).double().mean())
    return Problem(known, y, left_out, found, {name: see(z) for name, z in others.items()}, accuracy)
