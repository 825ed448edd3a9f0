"""What a fit compares new inputs with: its training examples, and how left-out ones look beside them (`posterity.novelty`).

An honest scale needs examples that the network was not trained on. There are three ways to have them: a network that no example
has changed (`unchanged`), networks of folds (`of_folds`), and examples that were set aside (`set_aside`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from posterity.blocks import evaluating, find_blocks, named, write_blocks
from posterity.curvature import Likelihood
from posterity.data import Data
from posterity.data.batches import Batch, batches
from posterity.data.leave_out import STAYS, LeaveOut
from posterity.errors import BadData, NoData
from posterity.novelty.left_out import Features, LeftOutInputs, Moments, affordable, by_folds
from posterity.novelty.moments import RelativeVariance, of_outputs
from posterity.novelty.reference import BUDGET, LIMIT, Reference
from posterity.novelty.scoring import VARIANCE
from posterity.novelty.watching import INPUT, inputs_of, watched_layers, watching

log = logging.getLogger("posterity")
FOLDS = 10
"""Parts in which rows of features are left out."""
JUDGED = 1000
"""Left-out examples that settle the scale, at most."""
AT_ONCE = 250
ROOM = BUDGET // 2 // (LIMIT // 2)
"""Numbers that an input's features may have, so that half of `LIMIT` inputs fit into a file."""
Weights = Mapping[str, Tensor]
"""By the names of the network's parameters, or of its blocks."""


def unchanged(
    model: nn.Module,
    weights: Weights | None,
    whole: Batch,
    left_out: Tensor | None,
    leave_out: LeaveOut,
    likelihood: Likelihood,
    source: Features | None = None,
) -> Reference | None:
    """By a network whose features no example has changed: leaving out rows is enough.

    Args:
        model: the network.
        weights: other weights that its features are taken under.
        whole: the examples.
        left_out: outputs of every example by a posterior that has not seen it; None where there are none.
        leave_out: which of them were left out, and which belong together.
        likelihood: what outputs mean.
        source: features of the source's examples under the same weights.
    """
    chosen = _some(torch.arange(whole.count), LIMIT)
    features, _ = seen_by(model, weights, whole.rows(chosen))
    if not features and left_out is None:
        return None
    folds = _row_folds(leave_out, left_out is not None)[chosen]
    moments = {} if left_out is None else of_outputs(left_out[chosen].cpu(), likelihood)
    parts = by_folds(features, moments, folds) if len(folds) > 1 else []
    source = None if source is None or source.keys() != features.keys() else source
    return _reference(features, parts, source)


def of_inputs(whole: Batch, leave_out: LeaveOut) -> Reference | None:
    """By the inputs themselves, for predictors that do not run the network."""
    chosen = _some(torch.arange(whole.count), LIMIT)
    some = whole.rows(chosen)
    rows = inputs_of(some.positional, some.named)
    return (
        None
        if rows is None
        else _reference({INPUT: rows}, by_folds({INPUT: rows}, {}, _row_folds(leave_out, False)[chosen]))
    )


def of_folds(
    model: nn.Module,
    networks: Sequence[Weights],
    whole: Batch,
    leave_out: LeaveOut,
    likelihood: Likelihood,
) -> Reference | None:
    """By networks of which the first saw all examples, and each other one not its fold."""
    known, _ = seen_by(model, networks[0], whole.rows(_some(torch.arange(whole.count), LIMIT)))
    if not known:
        return None
    parts = []
    for fold, weights in zip(leave_out.parts, networks[1:], strict=False):
        kept, out = (x.cpu() for x in leave_out.split(fold))
        near, _ = seen_by(model, weights, whole.rows(_some(kept, LIMIT)))
        features, outputs = seen_by(model, weights, whole.rows(_some(out, JUDGED // len(leave_out.parts))))
        parts.append(LeftOutInputs(near, features, of_outputs(outputs.cpu(), likelihood)))
    return _reference(known, parts)


def set_aside(
    model: nn.Module, part: Data, held: Data | None, likelihood: Likelihood, batch_size: int
) -> Reference | None:
    """By examples that a trained network was not trained on.

    Without such examples its own are left out of each other: their features lie closer together than those of new inputs, and
    its outputs say nothing of new ones.
    """
    known, _ = _read(model, part, batch_size, LIMIT)
    if not known:
        return None
    if held is None:
        return _reference(known, by_folds(known, {}))
    features, outputs = _read(model, held, batch_size, JUDGED)
    # Where an example has a row of outputs for every token, its features speak alone.
    moments = of_outputs(outputs.cpu(), likelihood) if outputs.ndim == 2 else {}
    return _reference(known, [LeftOutInputs(known, features, moments)])


@torch.no_grad()
def seen_by(model: nn.Module, weights: Weights | None, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
    """What the last layers are given, and the outputs [n, outputs]: one forward pass."""
    place, own = next(model.parameters()), dict(weights or {})
    if not own.keys() <= dict(model.named_parameters()).keys():
        blocks = find_blocks(model, named(own))
        # A head that is read in other directions than the task's classes changes no feature.
        fitting = {name: block for name, block in blocks.items() if tuple(own[name].shape) == block.shape}
        own = write_blocks(fitting, {name: own[name] for name in fitting})
    own, outputs = {name: x.to(place) for name, x in own.items()}, []
    with evaluating(model), watching(model, watched_layers(model), batch.count) as watch:
        for index in torch.arange(batch.count).split(AT_ONCE):
            piece = batch.rows(index).to(place.device)
            outputs.append(piece.each(piece.outputs(model, own)))
    features = watch.features
    return (affordable(features, ROOM) if features else {}), torch.cat(outputs).double()


def _read(model: nn.Module, data: Data, batch_size: int, most: int) -> tuple[dict[str, Tensor], Tensor]:
    """Features and outputs of some examples of data of any length, each as likely as any other."""
    kept: Batch | None = None
    places, generator = torch.empty(0), torch.Generator().manual_seed(0)
    for batch in batches(data, batch_size):
        places = torch.cat((places, torch.rand(batch.count, generator=generator)))
        kept = batch if kept is None else Batch.joined([kept, batch])
        if len(places) > 2 * most:
            places, kept = _least(places, kept, most)
    if kept is None:
        raise NoData("the data held no example.")
    return seen_by(model, None, _least(places, kept, most)[1])


def _least(places: Tensor, kept: Batch, most: int) -> tuple[Tensor, Batch]:
    index = places.argsort()[:most].sort().values
    return places[index], kept.rows(index)


def _some(index: Int[Tensor, " n"], most: int) -> Int[Tensor, " m"]:
    if len(index) <= most:
        return index
    return index[torch.randperm(len(index), generator=torch.Generator().manual_seed(0))[:most].sort().values]


def _row_folds(leave_out: LeaveOut, judged: bool) -> Int[Tensor, " n"]:
    """Whole groups, or random parts; where outputs count too, no example that was never left out."""
    n = len(leave_out.folds)
    units = torch.arange(n) if leave_out.groups is None else leave_out.groups.cpu()
    order = torch.randperm(int(units.max()) + 1, generator=torch.Generator().manual_seed(0))
    folds = order[units] % min(FOLDS, len(order))
    return folds.masked_fill(leave_out.folds.cpu() == STAYS, STAYS) if judged else folds


def _reference(known: Features, parts: Sequence[LeftOutInputs], source: Features | None = None) -> Reference | None:
    """With the variance that known rows leave, where there are rows to leave any."""
    last = list(known)[-1] if known else None
    if last is not None:
        parts = [LeftOutInputs(p.known, p.features, _with_variance(p, last)) for p in parts]
    try:
        return Reference.of(known, parts, source=source)
    except (BadData, NoData) as error:
        log.info("unknown inputs are not scored: %s", error)
        return None


def _with_variance(part: LeftOutInputs, last: str) -> Moments:
    variance = RelativeVariance.of(part.known[last].cpu())(part.features[last].cpu())
    return {**part.moments, VARIANCE: variance}
