"""Every single score, every rule that was tried, and what others would write in a few lines, on the same networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from posterity.novelty.left_out import belongs, joined
from posterity.novelty.neighbours import Neighbourhood, names
from posterity.novelty.ranks import Ranks
from posterity.novelty.whitening import Whitening
from posterity_studies.shared.known_inputs import LayerInputs, Problem

MOMENTS = ("entropy", "energy", "variance")
RATE = 0.05

# --- rules -----------------------------------------------------------------------------------------

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
    source = problem.source if problem.source and belongs(problem.left_out, problem.source) else None
    layers = list(problem.known.features)
    spaces = _spaces(problem.known.features, source)
    parts = []
    for part in problem.left_out:
        near = _spaces(part.known, source)
        own = [part.moments[name].double()[:, None] for name in MOMENTS]
        parts.append(torch.cat([*(near[name].scores(part.features[name]) for name in layers), *own], 1))

    def of(inputs: LayerInputs) -> Tensor:
        moments = inputs.moments(problem.known.head)
        own = [moments[name][:, None] for name in MOMENTS]
        return torch.cat([*(spaces[name].scores(inputs.features[name]) for name in layers), *own], 1)

    called = [name for layer in layers for name in names(layer)] + list(MOMENTS)
    others = {name: of(inputs) for name, inputs in problem.others.items()}
    return ScoreColumns(layers, called, torch.cat(parts), of(problem.new), others)


def _spaces(features: Mapping[str, Tensor], source: Mapping[str, Tensor] | None) -> dict[str, Neighbourhood]:
    rows = joined(features, source) if source else features
    return {name: Neighbourhood.of(x) for name, x in rows.items()}


@dataclass(frozen=True, eq=False)
class Nats:
    """Of left-out inputs among each other, of new and of other inputs among the left-out ones, by score."""

    left_out: Tensor
    new: Tensor
    others: Mapping[str, Tensor]

    @classmethod
    def of(cls, found: ScoreColumns) -> Nats:
        turn = torch.arange(len(found.left_out)) % 10
        inner = torch.empty_like(found.left_out)
        for one in turn.unique():
            out = turn == one
            inner[out] = _nats(found.left_out[~out], found.left_out[out])
        others = {name: _nats(found.left_out, x) for name, x in found.others.items()}
        return cls(inner, _nats(found.left_out, found.new), others)


def _nats(known: Tensor, x: Tensor) -> Tensor:
    return torch.stack([Ranks.of(known[:, i]).nats(x[:, i]) for i in range(known.shape[1])], 1)


def p_values(rule: Rule, found: ScoreColumns, nats: Nats) -> tuple[Tensor, dict[str, Tensor]]:
    """Of new inputs and of the others."""
    columns = rule.columns(found.layers, found.called)
    join = JOINS[rule.join]
    ranks = Ranks.of(join(nats.left_out[:, columns]))
    others = {name: ranks.p(join(x[:, columns])) for name, x in nats.others.items()}
    return ranks.p(join(nats.new[:, columns])), others


# --- rivals ----------------------------------------------------------------------------------------

Rival = Callable[[Problem], Callable[[LayerInputs], Tensor]]


def _neighbours(k: int, unit: bool) -> Rival:
    def of(problem: Problem) -> Callable[[LayerInputs], Tensor]:
        scale = normalize if unit else (lambda x: x)
        known = scale(_all_known(problem))
        return lambda inputs: torch.cdist(scale(inputs.head), known).kthvalue(min(k, len(known)), 1).values

    return of


def _input_neighbours(problem: Problem) -> Callable[[LayerInputs], Tensor]:
    first = next(iter(problem.known.features))
    known = problem.known.features[first].double()
    return lambda inputs: torch.cdist(inputs.features[first].double(), known).kthvalue(min(5, len(known)), 1).values


def _mahalanobis(problem: Problem) -> Callable[[LayerInputs], Tensor]:
    whitening = Whitening.of(_all_known(problem))
    return lambda inputs: whitening(inputs.head).square().sum(1)


def _class_mahalanobis(problem: Problem) -> Callable[[LayerInputs], Tensor]:
    head, labels = problem.known.head, problem.labels
    means = torch.stack([head[labels == c].mean(0) for c in labels.unique()])
    within = Whitening.of(head - means[labels.unique(return_inverse=True)[1]])
    return lambda inputs: torch.stack([within(inputs.head - m).square().sum(1) for m in means], 1).min(1).values


def _all_known(problem: Problem) -> Tensor:
    """Target and source, as whoever has both would take them."""
    if problem.source is None:
        return problem.known.head
    return torch.cat((problem.known.head, list(problem.source.values())[-1].double()))


RIVALS: dict[str, Rival] = {
    "neighbours (5)": _neighbours(5, False),
    "neighbours (10)": _neighbours(10, False),
    "neighbours (5), unit length": _neighbours(5, True),
    "neighbours (10), unit length": _neighbours(10, True),
    "Mahalanobis": _mahalanobis,
    "Mahalanobis by class": _class_mahalanobis,
    "energy": lambda problem: lambda inputs: -inputs.logits.double().logsumexp(-1),
    "max probability": lambda problem: lambda inputs: -inputs.logits.double().softmax(-1).max(-1).values,
    "entropy": lambda problem: lambda inputs: inputs.moments(inputs.head[:1])["entropy"],
    "input neighbours (5)": _input_neighbours,
}
