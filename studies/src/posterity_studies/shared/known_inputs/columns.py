"""Every single score of left-out, new and other inputs, a column each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from posterity.novelty.left_out import belongs, joined
from posterity.novelty.neighbours import Neighbourhood, names
from posterity.novelty.ranks import Ranks
from posterity.novelty.scoring import scores_of, scores_of_left_out
from posterity_studies.shared.known_inputs.problems import LayerInputs, Problem

MOMENTS = ("entropy", "energy", "variance")


@dataclass(frozen=True, eq=False)
class ScoreColumns:
    """Scores of left-out, new and other inputs, a column each."""

    layers: list[str]
    called: list[str]
    left_out: Tensor
    new: Tensor
    others: Mapping[str, Tensor]


def scored(problem: Problem) -> ScoreColumns:
    """Everything that rules are made of, from all known inputs."""
    known = problem.known.features
    source = problem.source if problem.source and belongs(problem.left_out, problem.source) else None
    rows = joined(known, source) if source else known
    spaces = {name: Neighbourhood.of(x) for name, x in rows.items()}
    count, draw = len(next(iter(rows.values()))), torch.Generator().manual_seed(0)
    left_out = scores_of_left_out(problem.left_out, MOMENTS, list(known), source, count, count, draw)

    def of(inputs: LayerInputs) -> Tensor:
        return scores_of(spaces, MOMENTS, inputs.features, inputs.moments(problem.known.head))

    called = [name for layer in known for name in names(layer)] + list(MOMENTS)
    others = {name: of(inputs) for name, inputs in problem.others.items()}
    return ScoreColumns(list(known), called, left_out, of(problem.new), others)


@dataclass(frozen=True, eq=False)
class Nats:
    """Of left-out inputs among each other, of new and of other inputs among the left-out ones, by score."""

    left_out: Tensor
    new: Tensor
    others: Mapping[str, Tensor]

    @classmethod
    def of(cls, found: ScoreColumns) -> Nats:
        ranks = [Ranks.of(column) for column in found.left_out.T]

        def nats(x: Tensor, among: bool = False) -> Tensor:
            return torch.stack([one.nats(x[:, i], among=among) for i, one in enumerate(ranks)], 1)

        others = {name: nats(x) for name, x in found.others.items()}
        return cls(nats(found.left_out, among=True), nats(found.new), others)


def auroc(inside: Tensor, outside: Tensor) -> float:
    """By ranks: hundreds are taken in a cell."""
    ordered = inside.sort().values
    below = [torch.searchsorted(ordered, outside.contiguous(), right=right).double().mean() for right in (False, True)]
    return round(float(below[0] + below[1]) / (2 * len(inside)), 5)
