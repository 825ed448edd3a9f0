"""Sets that no other figure of unknown inputs is of, and what a pretended unknown class says of each score."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posterity.novelty import energy, entropy
from posterity.novelty.left_out import belongs, joined
from posterity.novelty.neighbours import Neighbourhood
from posterity.novelty.scoring import scores_of
from posterity.novelty.whitening import Whitening
from posterity_studies.shared.known_inputs import LayerInputs, Problem
from posterity_studies.shared.known_inputs.columns import MOMENTS, ScoreColumns, auroc
from posterity_studies.shared.known_inputs.problems import after_source, from_scratch, frozen
from posterity_studies.shared.known_inputs.settings import Way, rows
from posterity_studies.shared.labelled.sets import MADE_UP

OWN = 2.0
"""What the library multiplies the predictor's own scores by."""
PARTS = 5
"""Parts of the classes that are pretended to be unknown in turn, at most."""
AS_THEY_ARE = ("emoji", "talk", "cub200", MADE_UP)
"""Features that are not brought to one spread."""


@dataclass(frozen=True)
class ClassSet:
    """One set; some of its classes are known, and the others are unknown."""

    data: str
    way: Way
    known: int
    examples: int
    """Of each class, or of all together where a network is trained from scratch."""
    other: str = ""
    """A set that is unknown as a whole."""


SETS = {
    MADE_UP: ClassSet(MADE_UP, "frozen features", 3, 10),
    "digits": ClassSet("digits", "frozen features", 6, 10),
    "emoji": ClassSet("emoji", "frozen features", 6, 15, "talk"),
    "talk": ClassSet("talk", "frozen features", 4, 15, "emoji"),
    "birds": ClassSet("cub200", "frozen features", 18, 8),
    "led7digit": ClassSet("led7digit", "frozen features", 7, 15),
    "marketing": ClassSet("marketing", "frozen features", 6, 20),
    "optdigits": ClassSet("optdigits", "frozen features", 7, 10),
    "penbased": ClassSet("penbased", "frozen features", 6, 15),
    "vowel": ClassSet("vowel", "frozen features", 8, 12),
    "vowel, many": ClassSet("vowel", "frozen features", 6, 40),
    "optdigits, new classes": ClassSet("optdigits", "after a source", 3, 8),
    "penbased, new classes": ClassSet("penbased", "after a source", 3, 8),
    "led7digit, trained": ClassSet("led7digit", "from scratch", 7, 200),
    "marketing, trained": ClassSet("marketing", "from scratch", 6, 700),
    "optdigits, trained": ClassSet("optdigits", "from scratch", 7, 400),
    "penbased, trained": ClassSet("penbased", "from scratch", 6, 500),
    "vowel, trained": ClassSet("vowel", "from scratch", 8, 400),
}


def problem(name: str, seed: int, steps: int, new: int, every_class: bool = False) -> Problem:
    """Draw known and unknown classes, and examples of both; after a source, its classes are a third of all."""
    one, draw = SETS[name], torch.Generator().manual_seed(1000 + seed)
    x, y = rows(one.data)
    x = (x[:, 3:] if one.data == "vowel" else x).flatten(1)  # its first columns say who speaks
    order = torch.randperm(len(y), generator=draw)
    x, y = x[order], y[order]
    classes = torch.randperm(int(y.max()) + 1, generator=draw)
    cut = len(classes) // 3 if one.way == "after a source" else 0
    source, number = classes[:cut], torch.full((len(classes),), -1)
    number[classes[cut : cut + one.known]] = torch.arange(one.known)
    of_source, unknown, own = torch.isin(y, source), torch.isin(y, classes[cut + one.known :]), number[y]
    if one.way == "from scratch":
        of_known = (own >= 0).nonzero().flatten()
        train = of_known[: min(one.examples, 3 * len(of_known) // 4)]
    else:
        parts = [(own == c).nonzero().flatten() for c in range(one.known)]
        train = torch.cat([part[: min(one.examples, 2 * len(part) // 3)] for part in parts])
    rest = own >= 0
    rest[train] = False
    tested = rest.nonzero().flatten()[:new]
    if one.data not in AS_THEY_ARE:
        base = x[of_source] if cut else x[train]
        x = (x - base.mean(0)) / base.std(0).clamp_min(1e-3)
    known, held, others = (x[train], own[train]), (x[tested], own[tested]), {"classes": x[unknown][:new]}
    if one.other:
        others[one.other] = rows(one.other)[0][:new]
    if one.way == "from scratch":
        return from_scratch("tables", known, held, others, seed, steps)
    if one.way == "frozen features":
        return frozen(known, held, others, every_class)
    found = torch.searchsorted(source.sort().values, y[of_source])
    return after_source("tables", (x[of_source][:2000], found[:2000]), known, held, others, seed, steps, every_class)


def pretended(made: Problem, found: ScoreColumns) -> Tensor:
    """AUROC of each score for known classes that are taken out of what is known, and out of the outputs."""
    labels = torch.cat([part.labels for part in made.left_out_labels])
    logits = torch.cat([part.logits for part in made.left_out_labels]).double()
    source = made.source if made.source and belongs(made.left_out, made.source) else None
    count = logits.shape[1]
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    hints = []
    for i in range(min(PARTS, count)):
        hidden = shuffled[i :: min(PARTS, count)]
        kept = torch.tensor([c for c in range(count) if c not in hidden])
        unknown = []
        for part, of in zip(made.left_out, made.left_out_labels, strict=True):
            near, out = ~torch.isin(of.known, hidden), torch.isin(of.labels, hidden)
            if not bool(out.any()) or int(near.sum()) < 2:
                continue
            own = {layer: x[near] for layer, x in part.known.items()}
            spaces = {layer: Neighbourhood.of(x) for layer, x in (joined(own, source) if source else own).items()}
            inputs = LayerInputs({layer: x[out] for layer, x in part.features.items()}, of.logits[out][:, kept])
            moments = inputs.moments(list(own.values())[-1])
            unknown.append(scores_of(spaces, MOMENTS, inputs.features, moments))
        known = ~torch.isin(labels, hidden)
        columns, left = found.left_out[known].clone(), logits[known][:, kept]
        columns[:, found.called.index("entropy")] = entropy(left.softmax(-1))
        columns[:, found.called.index("energy")] = energy(left)
        if unknown:
            scores = torch.cat(unknown)
            hints.append([auroc(columns[:, j], scores[:, j]) for j in range(columns.shape[1])])
    return torch.tensor(hints, dtype=torch.float64).mean(0)


def with_class_distance(made: Problem, found: ScoreColumns) -> ScoreColumns:
    """One more score: the distance to the nearest class, by the last layer's covariance within classes (Lee et al., 2018)."""
    last = found.layers[-1]
    left_out = [
        _class_distance(part.known[last], of.known, part.features[last])
        for part, of in zip(made.left_out, made.left_out_labels, strict=True)
    ]

    def of(inputs: LayerInputs) -> Tensor:
        return _class_distance(made.known.features[last], made.labels, inputs.features[last])[:, None]

    others = {name: torch.cat((x, of(made.others[name])), 1) for name, x in found.others.items()}
    columns = torch.cat((found.left_out, torch.cat(left_out)[:, None]), 1)
    return ScoreColumns(
        found.layers, [*found.called, "class"], columns, torch.cat((found.new, of(made.new)), 1), others
    )


def _class_distance(known: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    classes, number = labels.unique(return_inverse=True)
    means = torch.stack([known[number == c].double().mean(0) for c in range(len(classes))])
    within = Whitening.of(known.double() - means[number])
    return torch.stack([within(rows.double() - mean).norm(dim=1) for mean in means], 1).min(1).values
