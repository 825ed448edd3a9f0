"""All scores of inputs, a column each: of new ones, and of known ones that were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.errors import SizeMismatch
from posterity.novelty.left_out import Features, LeftOutInputs, Moments, joined, thinned
from posterity.novelty.moments import RelativeVariance
from posterity.novelty.neighbours import Neighbourhood

VARIANCE = "variance"
"""The score that the kept features of the last layer give: `RelativeVariance`."""


def scores_of(
    spaces: Mapping[str, Neighbourhood], called: Sequence[str], features: Features, moments: Moments
) -> Float[Tensor, "m scores"]:
    """Six distances a layer, then the predictor's own scores in the order in which they are called."""
    if absent := [name for name in called if name not in moments]:
        raise SizeMismatch(
            f"scores {absent} are missing: the predictor gave {list(moments)}, the reference has {list(called)}."
        )
    own = [moments[name].detach().cpu().double().reshape(-1, 1) for name in called]
    return torch.cat([*_distances(spaces, features), *own], 1)


def scores_of_left_out(
    left_out: Sequence[LeftOutInputs],
    called: Sequence[str],
    layers: Sequence[str],
    source: Features | None,
    count: int,
    compared: int,
    draw: torch.Generator,
) -> Float[Tensor, "m scores"]:
    """Scores of known inputs, each compared with those that were not left out with it, as new inputs will be with all.

    Where folds are left out fewer are left to compare with, and distances and the variance are larger than those of new inputs.
    By how much shows when as large a share is left out once more.

    Args:
        left_out: what was left out, part by part.
        called: the predictor's own scores.
        layers: whose features are compared; none where they are to be left out.
        source: the source's features, if they count as known.
        count: known inputs that are compared with, at most.
        compared: those that new inputs will be compared with.
        draw: which are taken where there are more.
    """
    columns, growth = [], []
    for part in left_out:
        if not layers:
            columns.append(scores_of({}, called, part.features, part.moments))
            continue
        near = thinned(joined(part.known, source) if source else part.known, count, draw)
        columns.append(scores_of(_spaces(near), called, part.features, part.moments))
        rows = len(next(iter(near.values())))
        if 1 < rows < compared:
            without = thinned(near, max(rows * rows // compared, 1), draw)
            growth.append(_grown(without, part.features, called) / _grown(near, part.features, called))
    if not columns:
        return torch.empty(0, len(called) + 6 * len(layers), dtype=torch.float64)
    found = torch.cat(columns)
    return found / torch.cat(growth).nanmedian(0).values if len(growth) == len(columns) else found


def _grown(known: Mapping[str, Tensor], features: Features, called: Sequence[str]) -> Float[Tensor, "m scores"]:
    """Scores that depend on how many inputs are known; one for those that do not."""
    last = list(known)[-1]
    one = torch.ones(len(features[last]), dtype=torch.float64)
    own = [RelativeVariance.of(known[last].cpu())(features[last].cpu()) if name == VARIANCE else one for name in called]
    columns = torch.cat([*_distances(_spaces(known), features), *(x[:, None] for x in own)], 1)
    return columns.clamp_min(torch.finfo(torch.float32).tiny)


def _spaces(features: Mapping[str, Tensor]) -> dict[str, Neighbourhood]:
    return {layer: Neighbourhood.of(x.cpu()) for layer, x in features.items()}


def _distances(spaces: Mapping[str, Neighbourhood], features: Features) -> list[Tensor]:
    return [space.scores(features[layer].detach().cpu()) for layer, space in spaces.items()]
