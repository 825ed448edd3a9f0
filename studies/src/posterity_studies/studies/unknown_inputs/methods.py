"""Every single score and every rule that was tried, on the same networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posterity.novelty.left_out import belongs, joined
from posterity.novelty.neighbours import Neighbourhood, names
from posterity.novelty.ranks import Ranks
from posterity.novelty.scoring import scores_of, scores_of_left_out
from posterity_studies.shared.known_inputs import LayerInputs, Problem

MOMENTS = ("entropy", "energy", "variance")
RATE = 0.05

Join = Callable[[Tensor], Tensor]
"""From −ln p, in nats, of each input by score to one number."""

JOINS: dict[str, Join] = {
    "Fisher": lambda s: s.sum(1),
    "Cauchy": lambda s: _log_mean(s),
    "least p": lambda s: s.max(1).values,
    "upper half": lambda s: s.topk((s.shape[1] + 1) // 2).values.sum(1),
}
LAYERS: dict[str, Callable[[Sequence[str]], Sequence[str]]] = {
    "head": lambda layers: layers[-1:],
    "all layers": lambda layers: layers,
}
FORMS = {"distance": ("distance",), "relative": ("relative",), "both forms": ("distance", "relative")}
OWN: dict[str, tuple[str, ...]] = {
    "no own": (),
    "entropy": ("entropy",),
    "all own": MOMENTS,
    "all own twice": (*MOMENTS, *MOMENTS),
}


@dataclass(frozen=True)
class Rule:
    """Which scores are joined, and how."""

    join: str
    layers: str
    forms: str
    own: str

    def __str__(self) -> str:
        return f"{self.join}, {self.layers}, {self.forms}, {self.own}"

    def columns(self, layers: Sequence[str], called: Sequence[str]) -> list[int]:
        kept = LAYERS[self.layers](layers)
        wanted = [name for layer in kept for name in names(layer) if name.endswith(FORMS[self.forms])]
        return [called.index(name) for name in (*wanted, *OWN[self.own])]


RULES = [Rule(j, layers, forms, own) for j in JOINS for layers in LAYERS for forms in FORMS for own in OWN]
CHOSEN = Rule("Fisher", "all layers", "both forms", "all own twice")
"""What the library does."""


def _log_mean(nats: Tensor) -> Tensor:
    """ln of the mean of 1/p: Cauchy's combination where p is small, without its trouble where p is near one."""
    return nats.logsumexp(1)


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


def p_values(rule: Rule, found: ScoreColumns, nats: Nats) -> tuple[Tensor, dict[str, Tensor]]:
    """Of new inputs and of the others."""
    columns = rule.columns(found.layers, found.called)
    join = JOINS[rule.join]
    ranks = Ranks.of(join(nats.left_out[:, columns]))
    others = {name: ranks.p(join(x[:, columns])) for name, x in nats.others.items()}
    return ranks.p(join(nats.new[:, columns])), others
