"""Certificates by recursion: the posterior of every chunk is the prior of the next, and no chunk's evidence is lost.

A split prior pays with the examples that refined it: they certify nothing. Here each of T posteriors is compared with the one
before (Wu et al., "Recursive PAC-Bayes", 2024):

    risk(ρ_t) = [risk(ρ_t) − γ risk(ρ_{t−1})] + γ risk(ρ_{t−1})

The bracket is small, so that its bound is tight, and it is certified by all chunks from t on; the rest is the bound of the
step before. The bracket's loss takes the values −γ, 0, 1−γ and 1, and is bounded as a sum of three coins (split-kl).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from posterity.bars import bar
from posterity.blocks import Block, evaluating
from posterity.curvature import Categorical
from posterity.curvature.batches import Batch
from posterity.curvature.provenance import Provenance
from posterity.errors import BadData, NoData, UnsupportedLayer
from posterity.gaussian import Gaussian
from posterity.gaussian.spread import Spread
from posterity.pacbayes.bounds import Spending, klinv
from posterity.pacbayes.certify import divergence
from posterity.pacbayes.draws import DrawnNetwork
from posterity.pacbayes.gibbs import zero_one
from posterity.pacbayes.optimise import optimise_posterior
from posterity.pacbayes.refusals import Examples, checked
from posterity.version import __version__

GAMMA = 0.5
"""How much of the step before is subtracted: fixed in advance."""


@dataclass(frozen=True)
class Step:
    """One posterior beside the one before it: the shares of replicates with a loss of at least each level, and their bounds."""

    n: int
    replicates: int
    kl: float
    levels: tuple[float, ...]
    """Where the loss steps up, the lowest value first."""
    shares: tuple[float, ...]
    bound: float
    """On the risk of this step's posterior."""


@dataclass(frozen=True)
class RecursiveCertificate:
    """A bound on the risk of networks drawn from the last posterior, with every step that leads to it."""

    bound: float
    confidence: float
    gibbs: float
    steps: tuple[Step, ...]
    prior: str = ""
    posterior: str = ""
    data: str = ""
    checks: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"risk, at {100 * self.confidence:g} %   ≤ {self.bound:.4f}   error of a network drawn anew"]
        for t, step in enumerate(self.steps, 1):
            lines.append(f"step {t}   n {step.n:,}   KL {step.kl:,.1f} nats   risk ≤ {step.bound:.4f}")
        return "\n".join([*lines, *(f"checked   {check}" for check in self.checks)])


@dataclass(frozen=True, eq=False)
class Recursive:
    posterior: Gaussian
    certificate: RecursiveCertificate


def recursive_certificate(
    model: nn.Module,
    prior: Gaussian,
    data: tuple[Tensor, Tensor],
    confidence: float = 0.95,
    *,
    chunks: int = 4,
    epochs: int = 10,
    passes: int = 10,
    grid: int = 1,
    vouched: str | None = None,
    generator: torch.Generator | None = None,
    progress: bool = True,
    **optimising: Any,
) -> Recursive:
    """Learn from the data in chunks, each as large as all before it, and certify with all of them.

    Every posterior is optimised on its chunk from the one before. The last chunk is half the data.

    Args:
        model: the network's architecture, of linear layers and convolutions.
        prior: a Gaussian that has not seen the data.
        data: inputs and labels.
        confidence: with which the bound holds.
        chunks: how many.
        epochs: over each chunk.
        passes: draws for every example.
        grid: how many priors the choice was from, beyond what the library knows of.
        vouched: a text by which you answer for a prior of unknown past.
        generator: of the order, the training and the draws.
        progress: whether to show bars.
        optimising: further options of `optimise_posterior`.
    Returns:
        A `Recursive`: the certificate, and the posterior that it holds for.

    Example:
        >>> pt.recursive_certificate(model, prior, (x, y), chunks=4).certificate.bound
    """
    if chunks < 1:
        raise ValueError(f"chunks is at least 1, not {chunks}")
    x, y = data
    n = len(y)
    edges = [0, *(n >> (chunks - t) for t in range(1, chunks + 1))]
    if edges[1] < 1:
        raise NoData(f"{n} examples cannot be cut into {chunks} chunks that double in size.")
    order = torch.randperm(n, generator=generator)
    x, y = x[order], y[order]
    examples = Examples.of((x, y))
    if examples.n < examples.count:
        raise BadData(
            f"{examples.count - examples.n:,} of {examples.count:,} examples are copies of others: chunks would share "
            "them. Give each once."
        )
    found = checked(model, prior, prior, examples, Spending(1 - confidence), grid, vouched)
    before, bound, gibbs = prior, 1.0, 1.0
    steps: list[Step] = []
    for t, (start, stop) in enumerate(pairwise(edges)):
        chunk, later = (x[start:stop], y[start:stop]), (x[start:], y[start:])
        after = optimise_posterior(
            model,
            before,
            before,
            chunk,
            confidence=confidence,
            epochs=epochs,
            generator=generator,
            progress=progress,
            **optimising,
        )
        kl = sum(divergence(after, before).values())
        levels = (0.0, 1.0) if t == 0 else (-GAMMA, 0.0, 1 - GAMMA, 1.0)
        losses = _losses(model, found.blocks, after, before if t else None, later, passes, generator, progress)
        shares = tuple(float((losses >= level - 1e-9).double().mean()) for level in levels[1:])
        bound = _bound(levels, shares, kl, len(later[1]), len(losses), found.spending, chunks, bound)
        # Losses of 1 and 1 − γ are errors of the new draw; 0 and −γ are not.
        gibbs = float((losses > 0).double().mean())
        steps.append(Step(len(later[1]), len(losses), kl, levels, shares, bound))
        before = after
    record = RecursiveCertificate(
        bound,
        confidence,
        gibbs,
        tuple(steps),
        prior.fingerprint(),
        before.fingerprint(),
        examples.fingerprint,
        found.notes,
        {"posterity": __version__, "torch": str(torch.__version__)},
    )
    seen = prior.provenance.joined(Provenance.of(data))
    return Recursive(replace(before, card=prior.card).with_provenance(seen), record)


def _bound(
    levels: tuple[float, ...],
    shares: tuple[float, ...],
    kl: float,
    n: int,
    replicates: int,
    spending: Spending,
    chunks: int,
    before: float,
) -> float:
    """The lowest level plus each step up, weighed by a bound on how often it is taken; every coin pays its part of δ."""
    coins = chunks * len(shares)
    total = levels[0]
    for low, high, share in zip(levels, levels[1:], shares, strict=False):
        upper = klinv(share, math.log(coins / spending.draws) / replicates)
        total += (high - low) * klinv(upper, (kl + math.log(2 * coins * math.sqrt(n) / spending.bound)) / n)
    return min(1.0, total if len(levels) == 2 else total + GAMMA * before)


@torch.no_grad()
def _losses(
    model: nn.Module,
    blocks: dict[str, Block],
    after: Gaussian,
    before: Gaussian | None,
    data: tuple[Tensor, Tensor],
    passes: int,
    generator: torch.Generator | None,
    progress: bool,
) -> Tensor:
    """Error of a draw from one posterior less γ times that of a draw from the other: one replicate an example and pass."""
    like = next(model.parameters())
    networks = [
        DrawnNetwork(model, blocks, {k: Spread.of(g.mean[k], g.precision[k], like) for k in blocks})
        for g in (after, *([] if before is None else [before]))
    ]
    found = []
    bars = bar()
    bars.disable = not progress
    with evaluating(model):
        for network in networks:
            if not network.look(Batch((data[0][:32].to(like.device),), {}, data[1][:32])):
                raise UnsupportedLayer("recursive certificates need a network of linear layers and convolutions alone.")
        with bars:
            task = bars.add_task("drawing networks", total=len(data[1]))
            for images, labels in zip(data[0].split(32), data[1].split(32), strict=True):
                batch = Batch((images.to(like.device),), {}, labels.to(like.device))
                targets = batch.targets.repeat_interleave(passes)
                wrong = [zero_one(Categorical(), net.outputs(batch, generator, passes), targets) for net in networks]
                found.append(wrong[0] if before is None else wrong[0] - GAMMA * wrong[1])
                bars.advance(task, len(labels))
    return torch.cat(found)
