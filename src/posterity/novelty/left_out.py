"""Known inputs as seen by a network that was not trained on them: what p-values are honest by.

A network's features of its own training examples lie closer together than those of new inputs. A p-value among them calls
known inputs unknown: study unknown-inputs has 5 % meant and many times that reached. So scores of known inputs come from

- frozen features, or a source's network on the target's inputs: leaving out folds (or groups) of rows is enough, `by_folds`;
- networks of folds: each gives the features of its own fold, and of what it was trained on to compare them with;
- examples that were set aside when the network was trained: one `LeftOutInputs` of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from posterity.data.leave_out import STAYS
from posterity.errors import BadData
from posterity.novelty.neighbours import NEIGHBOURS

Features = Mapping[str, Float[Tensor, "n _"]]
"""A row of numbers for each input, by layer; the last layer is what the head reads."""
Moments = Mapping[str, Float[Tensor, "n"]]
"""A number for each input, by name: the larger, the more unusual."""

FOLDS = 20
BELONGS = 0.5
"""The least share of source inputs among the neighbours of target inputs, relative to what it would be if both were alike."""


@dataclass(frozen=True, eq=False)
class LeftOutInputs:
    """Inputs that a network was not trained on, and those that they are compared with, both under that network."""

    known: Features
    features: Features
    moments: Moments


def by_folds(features: Features, moments: Moments, folds: Int[Tensor, "n"] | None = None) -> list[LeftOutInputs]:
    """Fold by fold, the rows of a network that was trained on none of these inputs.

    Args:
        features: by layer.
        moments: what a predictor that has not seen an input says of it (leave-one-out, or from the same folds).
        folds: what is left out together, whole groups where there are groups; at most twenty random folds by default. Rows of
            the fold −1 are never left out.
    """
    some = next(iter([*features.values(), *moments.values()]))
    if folds is None:
        shuffled = torch.randperm(len(some), generator=torch.Generator().manual_seed(0))
        folds = shuffled % min(FOLDS, len(some))
    if len(folds) != len(some):
        raise BadData(f"{len(some)} inputs need as many folds, not {len(folds)}.")
    found = []
    for fold in folds[folds != STAYS].unique().tolist():
        out = folds == fold
        if bool(out.all()):
            break
        found.append(LeftOutInputs(_rows(features, ~out), _rows(features, out), _rows(moments, out)))
    return found


def joined(first: Features, second: Features) -> dict[str, Tensor]:
    return {layer: torch.cat((x, second[layer].to(x))) for layer, x in first.items()}


def thinned(features: Features, count: int, generator: torch.Generator) -> dict[str, Tensor]:
    """At most `count` rows of each layer's features, the same rows for all layers."""
    total = len(next(iter(features.values())))
    if total <= count:
        return dict(features)
    chosen = torch.randperm(total, generator=generator)[:count].sort().values
    return _rows(features, chosen)


def affordable(features: Features, room: int) -> dict[str, Tensor]:
    """As many layers as have `room` numbers in all: first the last one, then the input, then from the last backwards.

    The last is always among them.
    """
    layers = list(features)
    kept: set[str] = set()
    for layer in dict.fromkeys((layers[-1], layers[0], *reversed(layers))):
        width = features[layer].shape[1]
        if not kept or width <= room:
            kept.add(layer)
            room -= width
    return {layer: rows for layer, rows in features.items() if layer in kept}


def belongs(left_out: Sequence[LeftOutInputs], source: Features) -> bool:
    """Whether the target's inputs lie among the source's: by the neighbours of left-out inputs where the head reads.

    Among alike inputs, the share of source inputs that are neighbours is their share of all.
    """
    found, alike = 0.0, 0.0
    layer = list(source)[-1]
    theirs = normalize(source[layer].double())
    for part in left_out:
        ours, new = (normalize(x[layer].double()) for x in (part.known, part.features))
        rows = torch.cat((ours, theirs.to(ours)))
        nearest = torch.cdist(new, rows).topk(min(NEIGHBOURS, len(rows)), largest=False).indices
        found += float((nearest >= len(ours)).double().mean(1).sum())
        alike += len(new) * len(theirs) / len(rows)
    return found >= BELONGS * alike


def _rows(values: Mapping[str, Tensor], index: Tensor) -> dict[str, Tensor]:
    return {name: x[index.to(x.device)] for name, x in values.items()}
