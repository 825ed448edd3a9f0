"""Which labels to ask for next: our rule and the usual ones, all for the same head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from posterity.heads import ClassFit, ask
from posterity.heads.views import unit


def _probs(fit: ClassFit, pool: Tensor) -> Tensor:
    return fit.head.log_probs(pool).exp()


def _random(fit: ClassFit, pool: Tensor, k: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(len(pool), generator=generator)[:k]


def _ours(fit: ClassFit, pool: Tensor, k: int, generator: torch.Generator) -> Tensor:
    return ask(fit.head, pool, k, generator=generator)


def _least_confident(fit: ClassFit, pool: Tensor, k: int, generator: torch.Generator) -> Tensor:
    return _probs(fit, pool).amax(1).argsort()[:k]


def _bald(fit: ClassFit, pool: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """The largest mutual information of label and head, over 64 draws of logits with the head's own variance."""
    log_probs, deviation = fit.head.log_probs(pool), fit.head.belief.variance(fit.head.belief.inputs(pool)).sqrt()
    noise = torch.randn(64, *log_probs.shape, generator=generator, dtype=log_probs.dtype)
    p = (log_probs + deviation[:, None] * noise).softmax(-1)

    def entropy(q: Tensor) -> Tensor:
        return -(q * q.clamp_min(1e-12).log()).sum(-1)

    return (entropy(p.mean(0)) - entropy(p).mean(0)).argsort(descending=True)[:k]


def _badge(fit: ClassFit, pool: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k-means++ among gradients of the last layer for the likeliest label (Ash et al. 2020)."""
    p = _probs(fit, pool)
    residual = p - torch.nn.functional.one_hot(p.argmax(1), p.shape[1])
    rows = unit(pool)
    gram = (residual @ residual.mT) * (rows @ rows.mT)
    norms = gram.diagonal()
    chosen = [int(norms.argmax())]
    distance = (norms + norms[chosen[0]] - 2 * gram[:, chosen[0]]).clamp_min(0)
    while len(chosen) < k:
        distance[chosen] = 0
        new = int(torch.multinomial(distance + 1e-15, 1, generator=generator))
        chosen.append(new)
        distance = torch.minimum(distance, (norms + norms[new] - 2 * gram[:, new]).clamp_min(0))
    return torch.tensor(chosen)


def _core_set(fit: ClassFit, pool: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """The row farthest from all that are known, again and again (Sener and Savarese 2018)."""
    rows = unit(pool)
    distance = torch.cdist(rows, unit(fit.features)).amin(1)
    chosen: list[int] = []
    for _ in range(k):
        chosen.append(int(distance.argmax()))
        distance = torch.minimum(distance, torch.cdist(rows, rows[chosen[-1:]])[:, 0])
    return torch.tensor(chosen)


Rule = Callable[[ClassFit, Tensor, int, torch.Generator], Tensor]
RULES: dict[str, Rule] = {
    "random": _random,
    "ours": _ours,
    "least confident": _least_confident,
    "BALD": _bald,
    "BADGE": _badge,
    "core-set": _core_set,
}
