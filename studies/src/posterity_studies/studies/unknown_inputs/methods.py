"""Every single score and every rule that was tried, on the same networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from posterity.novelty.neighbours import names
from posterity.novelty.ranks import Ranks
from posterity_studies.shared.known_inputs.columns import MOMENTS, Nats, ScoreColumns

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


def p_values(rule: Rule, found: ScoreColumns, nats: Nats) -> tuple[Tensor, dict[str, Tensor]]:
    """Of new inputs and of the others."""
    columns = rule.columns(found.layers, found.called)
    join = JOINS[rule.join]
    ranks = Ranks.of(join(nats.left_out[:, columns]))
    others = {name: ranks.p(join(x[:, columns])) for name, x in nats.others.items()}
    return ranks.p(join(nats.new[:, columns])), others
