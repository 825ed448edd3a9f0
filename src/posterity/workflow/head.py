"""A head on frozen features, and the labels it would like to have next."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posterity.checks import ValidatedData, check_groups
from posterity.curvature import EKFAC, Likelihood, estimate
from posterity.data.batches import Batch
from posterity.data.examples import TrainingSet
from posterity.data.leave_out import LeaveOut, numbered
from posterity.data.provenance import Provenance, sign
from posterity.errors import BadData, BadTargets, NoData, SizeMismatch, WrongChoice
from posterity.gaussian import Gaussian
from posterity.heads import ClassFit, HeadRecipe, NumberFit, Words, Worth, ask, classify, regress, worth
from posterity.heads.checks import checked_features, counted
from posterity.heads.classes import CHUNK
from posterity.heads.softmax import SoftmaxProblems, modes
from posterity.heads.views import Axes, FeatureNetwork, unit
from posterity.laplace import Scales, isotropic, update
from posterity.predictive.head import HeadPredictor
from posterity.predictive.predictor import Predictor
from posterity.predictive.sets import LeftOutScores
from posterity.workflow.fit import Fit
from posterity.workflow.make import signed
from posterity.workflow.plan import Plan

log = logging.getLogger("posterity")
PRECISION = 0.18
"""Of the Gaussian prior over weights: the head's own first strength. Certificates speak of it, so no data chooses it."""
SIZE = 4.0
"""Length of its means where names give them, chosen by no data either."""


def head(
    features: Any,
    labels: Any,
    *,
    groups: Tensor | None = None,
    prior: Words | Gaussian | Fit | None = None,
    classes: Sequence[str] | None = None,
    recipe: HeadRecipe | None = None,
) -> Fit:
    """Fit a head to the features of any encoder: few labels, no network, well under a second for a hundred of them.

    Softmax heads and discriminants, on rows of unit length and on standardised columns, each at several strengths; what they say
    of left-out folds gives each a temperature and a weight. The mode of every softmax head is exact. Numbers get Bayesian linear
    regressions in closed form. `.posterior`, for files, certificates and the next task's prior, is a Gaussian over one
    linear layer on rows of unit length.

    Args:
        features: a row of numbers for each example: a tensor, an array or a memory map.
        labels: text; whole numbers, which are classes from 0; or floating-point numbers, which are predicted as numbers.
        groups: which examples belong together: they are left out together.
        prior: `pt.words(encode, names)`, or an earlier head (a `Fit` or its `.posterior`) whose rows are handed down to classes
            of the same name. Classes with a name may have no label. Left-out examples settle how much a prior counts.
        classes: names of the classes, where labels are whole numbers.
        recipe: grids and beliefs; the settled ones by default.

    Returns:
        A `Fit`. Beside `predict`, `certify` and `save` it has `ask` (which to label next), `worth` and `tell` (add labels).

    Raises:
        BadData: if a column is not finite, with its number.
        BadTargets: if there is one class, or a class has neither label nor name.

    Example:
        >>> fit = pt.head(features, ["sports", "space", "sports"], prior=pt.words(encode, ["sports", "space"]))
        >>> fit.predict(new_features).classes
    """
    x = _kept(features)
    y, names = _labels(labels, prior.names if isinstance(prior, Words) else classes)
    words = None if names is None else _words(prior, names, x.shape[1])
    if names is None and prior is not None:
        raise BadTargets("a prior of named classes is given, and the labels are numbers: give them as text.")
    if not len(x):
        raise NoData("there is no labelled example: a head needs at least one of each of two classes.")
    if len(y) != len(x):
        raise SizeMismatch(f"there are {len(x)} rows of features and {len(y)} labels: one label a row is needed.")
    check_groups(groups, len(x))
    leave_out = LeaveOut.of(y, groups)
    source: ClassFit | NumberFit
    if names is None:
        source = regress(x, y, leave_out.folds)
    else:
        source = classify(x, y, leave_out.folds, classes=len(names), words=words, recipe=recipe)
    return _fit(source, x, y, leave_out, names, prior)


def _fit(
    source: ClassFit | NumberFit, x: Tensor, y: Tensor, leave_out: LeaveOut, classes: tuple[str, ...] | None, given: Any
) -> Fit:
    """The Gaussian over weights beside the head itself."""
    predictor = HeadPredictor.of(source, leave_out)
    outputs = 1 if classes is None else len(classes)
    model = FeatureNetwork(x.shape[1], outputs).to(x.dtype)
    prior = _prior(model, source, given)
    mean = _mode(source, prior.mean["linear"].double(), predictor.likelihood)
    with torch.no_grad():
        model.linear.weight.copy_(mean[:, :-1])
        model.linear.bias.copy_(mean[:, -1])
    targets = y if classes is not None else y.to(x.dtype)[:, None]
    sign(model, prior.provenance.joined(Provenance.of((x, targets))))
    draw = torch.Generator().manual_seed(0)
    curvature = estimate(
        model, ValidatedData((x, targets)), EKFAC(), predictor.likelihood, generator=draw, progress=False
    )
    posterior = signed(update(model, curvature, prior), model, None, classes)
    examples = TrainingSet([Batch((x,), {}, targets)], y, outputs)
    plan = Plan("head", ("head",), _reasons(source, classes))
    scores = _left_out(source, leave_out)
    return Fit(model, prior, posterior, curvature, Scales(), None, predictor, plan, examples, left_out=scores)


def _left_out(source: ClassFit | NumberFit, leave_out: LeaveOut) -> LeftOutScores | None:
    """How little the head without its fold expected each example, for sets and intervals."""
    judged = source.judged
    if not len(judged):
        return None
    if isinstance(source, ClassFit):
        values = 1 - source.left_out.exp().gather(1, source.labels[judged, None])[:, 0]
    else:
        values = (source.targets[judged] - source.means).abs() / source.variances.sqrt()
    return LeftOutScores.of(values, None if leave_out.groups is None else leave_out.groups[judged])


def _prior(model: FeatureNetwork, source: ClassFit | NumberFit, given: Any) -> Gaussian:
    """An isotropic prior over the weights, around names or earlier rows where they are given."""
    words = source.words if isinstance(source, ClassFit) else None
    if words is None:
        return isotropic(model, PRECISION)
    directions = words.directions.to(model.linear.weight.dtype)
    mean = torch.cat([SIZE * directions, directions.new_zeros(len(directions), 1)], 1)
    found = isotropic(model, PRECISION, {"linear": mean})
    seen = given.posterior.provenance if isinstance(given, Fit) else getattr(given, "provenance", Provenance.none())
    return found.with_provenance(seen)


def _mode(source: ClassFit | NumberFit, mean: Tensor, likelihood: Likelihood) -> Tensor:
    """The most probable weights under that prior: rows of length one in the coordinates of what they span, so exact."""
    rows = torch.cat([unit(source.features), source.features.new_ones(len(source.features), 1)], 1)
    axes = Axes.of(rows)
    z = rows @ axes.vectors
    if isinstance(source, NumberFit):
        noise = source.head.noise
        level = source.targets.mean()
        found = (z.mT @ (source.targets - level)) / (axes.values + PRECISION * noise)
        weights = (axes.vectors @ found)[None]
        weights[0, -1] += level
        return weights
    present = source.labels.unique()
    targets = (source.labels[:, None] == present).double()
    offsets = (rows @ mean.mT)[:, None, present]
    problem = SoftmaxProblems(
        z, targets, z.new_ones(1, len(z)), z.new_full((1, z.shape[1]), PRECISION), lambda index: offsets
    )
    found = modes(problem, 1e-4 * max(len(z), 20))[0]
    weights = mean.clone()
    weights[present] += (axes.vectors @ found).mT
    return weights


def _reasons(source: ClassFit | NumberFit, classes: tuple[str, ...] | None) -> tuple[str, ...]:
    """What the head is made of, and which classes nothing but a name speaks for."""
    shares: dict[str, float] = {}
    if isinstance(source, NumberFit):
        for m in source.head.members:
            name = f"linear on {VIEWS[m.view]}"
            shares[name] = shares.get(name, 0.0) + m.weight
    else:
        for candidate, weight in source.head.weights().items():
            name = "around the prior" if candidate.size else f"{candidate.method} on {VIEWS[candidate.view]}"
            name = "frequencies of the classes" if candidate.method == "frequencies" else name
            shares[name] = shares.get(name, 0.0) + weight
    made = ", ".join(f"{name} {share:.2f}" for name, share in sorted(shares.items(), key=lambda s: -s[1]))
    judged = len(source.judged)
    by = f"by {judged:,} left-out examples" if judged else "nothing could be left out: settled beliefs speak alone"
    reasons = [f"{source.head.width:,} features; weights {by}: {made}"]
    if isinstance(source, ClassFit) and classes is not None:
        counts = source.labels.bincount(minlength=len(classes))
        bare = [name for name, count in zip(classes, counts.tolist(), strict=True) if not count]
        if bare:
            named = ", ".join(bare[:5]) + (f" and {len(bare) - 5} more" if len(bare) > 5 else "")
            reasons.append(f"without a label, known by the prior alone: {named}")
            log.warning("%s", reasons[-1])
    return tuple(reasons)


VIEWS = {"unit": "rows of unit length", "columns": "standardised columns"}


# --- the next label ----------------------------------------------------------------------------------


def next_labels(
    predictor: Predictor, pool: Any, k: int, groups: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """`Fit.ask`: rows that the head was fitted to are no candidates."""
    own = _head_of(predictor, "ask")
    check_groups(groups, counted(pool))
    source, labelled = own.source, None
    if source is not None:
        known = set(_keys(source.features, torch.arange(len(source.features))))
        every = torch.arange(counted(pool)).split(CHUNK)
        found = [i for part in every for i, key in zip(part.tolist(), _keys(pool, part), strict=True) if key in known]
        labelled = torch.tensor(found, dtype=torch.int64)
    groups = None if groups is None else numbered(groups)
    return ask(own.head, pool, k, groups=groups, labelled=labelled, generator=generator)


def worth_of(predictor: Predictor, k: int, generator: torch.Generator | None) -> Worth:
    """`Fit.worth`."""
    source = _with_examples(predictor, "worth").source
    if not isinstance(source, ClassFit):
        raise WrongChoice("what labels are worth is a learning curve of classes, and this head predicts numbers.")
    return worth(source, k, generator or torch.Generator().manual_seed(0))


def with_labels(fit: Fit, features: Any, labels: Any, groups: Tensor | None) -> Fit:
    """`Fit.tell`: a new fit to all examples, old ones first."""
    own = _with_examples(fit.predictor, "tell")
    assert own.source is not None
    assert own.leave_out is not None
    assert fit.examples is not None
    before = own.leave_out.groups
    if (before is None) != (groups is None):
        raise BadData(
            "earlier examples belong to groups: give groups= for these too."
            if groups is None
            else "earlier examples belong to no groups: fit them again with groups=."
        )
    if before is not None and groups is not None:
        # Groups have the numbers that `before` gave them; a new one has a number that none of them has.
        groups = torch.cat([before, before.max() + 1 + numbered(groups)])
    x = torch.cat([fit.examples.whole.positional[0], _kept(features).to(fit.examples.whole.positional[0].dtype)])
    if isinstance(own.source, NumberFit):
        y, names = _labels(labels, None)
        if names is not None and isinstance(labels, Tensor | np.ndarray):
            y = torch.as_tensor(np.asarray(labels)).double()
        return head(x, torch.cat([own.source.targets, y.double()]), groups=groups)
    y, old = own.source.labels, fit.classes
    words = own.source.words
    array = np.asarray(labels)
    fresh = set(array.tolist()) - set(old) if array.dtype.kind in "OUS" and words is None else set()
    classes = tuple(sorted({*old, *fresh})) if fresh else old
    place = torch.tensor([classes.index(name) for name in old])
    new, _ = _labels(labels, classes)
    return head(x, torch.cat([place[y], new]), groups=groups, prior=words, classes=classes, recipe=own.source.recipe)


def _head_of(predictor: Predictor, verb: str) -> HeadPredictor:
    if not isinstance(predictor, HeadPredictor):
        raise WrongChoice(
            f"fit.{verb} is for heads on features: pt.head(features, labels) makes one, of a network's features too."
        )
    return predictor


def _with_examples(predictor: Predictor, verb: str) -> HeadPredictor:
    own = _head_of(predictor, verb)
    if own.source is None:
        raise BadData(f"fit.{verb} takes the training examples, and this fit was saved without them.")
    return own


def _keys(features: Any, index: Tensor) -> list[int]:
    """A number for each row, the same for the same row in float32."""
    return [hash(row.tobytes()) for row in checked_features(features, None, index).float().numpy()]


# --- what is given -----------------------------------------------------------------------------------


def _kept(features: Any) -> Tensor:
    """Features as they are kept: in the precision they came in, looked at."""
    wide = getattr(features, "dtype", None) in (torch.float64, np.float64)
    rows = checked_features(features)
    return rows if wide else rows.float()


def _words(prior: Words | Gaussian | Fit | None, names: tuple[str, ...], width: int) -> Words | None:
    """A prior as directions, one a class: zero where an earlier head does not have the class."""
    if isinstance(prior, Words):
        prior.check_width(width)
        return prior
    if prior is None:
        return None
    gaussian = prior.posterior if isinstance(prior, Fit) else prior
    if not isinstance(gaussian, Gaussian):
        raise WrongChoice(
            f"prior is a {type(gaussian).__name__}: give pt.words(encode, names), an earlier head, or its posterior."
        )
    known, rows = gaussian.card.classes, gaussian.mean.get("linear")
    shared = [name for name in names if name in known]
    if rows is None or len(rows) != len(known) or not shared:
        raise WrongChoice(
            f"the prior's classes are {', '.join(known[:5]) or 'not named'}, and the labels' {', '.join(names[:5])}: rows are "
            "handed down from an earlier pt.head to classes of the same name, and none is shared."
        )
    earlier = Words.of(known, rows[:, :-1].double())
    earlier.check_width(width)
    directions = earlier.directions.new_zeros(len(names), width)
    for name in shared:
        directions[names.index(name)] = earlier.directions[known.index(name)]
    return Words(names, directions)


def _labels(labels: Any, names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...] | None]:
    """Labels as class indices with the names of the classes, or as numbers without names."""
    if not isinstance(labels, Tensor):
        array = np.asarray(labels)
        if array.dtype.kind in "OUS":
            return _by_name(array, None if names is None else tuple(names))
        if array.dtype.kind not in "fiub":
            raise BadTargets(f"labels are {array.dtype}: give text, whole numbers or numbers.")
        labels = torch.from_numpy(np.array(array))
    y = labels.detach().cpu()
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise BadTargets(f"labels have shape {tuple(y.shape)}: give one for each row of features.")
    if y.is_floating_point():
        return y.double(), None
    y = y.long()
    found = y.unique().tolist()
    if names is not None:
        return y, tuple(names)
    if found != list(range(len(found))):
        raise BadTargets(
            f"whole numbers are classes from 0 without a gap, and these are {', '.join(map(str, found[:8]))}: give them as text, "
            "list(map(str, labels)), or name the classes."
        )
    return y, tuple(map(str, found))


def _by_name(labels: Any, names: tuple[str, ...] | None) -> tuple[Tensor, tuple[str, ...]]:
    given = labels.tolist()
    odd = next((i for i, label in enumerate(given) if not isinstance(label, str)), None)
    if labels.ndim != 1 or odd is not None:
        what = f"label {odd} is {given[odd]!r}" if odd is not None else f"labels have shape {labels.shape}"
        raise BadTargets(f"{what}: give one text for each row, and leave rows without a label out.")
    classes = names or tuple(sorted(set(given)))
    place = {name: i for i, name in enumerate(classes)}
    unknown = sorted(set(given) - set(place))
    if unknown:
        raise BadTargets(f'the label "{unknown[0]}" is none of the names of the classes: {", ".join(classes[:8])}.')
    return torch.tensor([place[name] for name in given], dtype=torch.int64), classes
