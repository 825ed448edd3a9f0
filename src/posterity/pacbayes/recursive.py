"""Certificates by recursion: the posterior of every chunk is the prior of the next, and no chunk's evidence is lost.

A split prior pays with the examples that refined it: they certify nothing. Here each of T posteriors is compared with the one
before (Wu et al., "Recursive PAC-Bayes", 2024):

    risk(ρ_t) = [risk(ρ_t) − γ risk(ρ_{t−1})] + γ risk(ρ_{t−1})

The bracket is small, so that its bound is tight, and it is certified by all chunks from t on; the rest is the bound of the
step before. The bracket's loss takes the values −γ, 0, 1−γ and 1, and is bounded as a sum of three coins (split-kl).

ρ_t may learn from all chunks up to t: what it has seen certifies no later step. Over all steps the risks cancel but for the
last, and KL(ρ_t ‖ ρ_{t−1}) counts γ^(T−t) in the last bound. Early steps may go far, therefore.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from posterity.bars import bar
from posterity.blocks import evaluating
from posterity.checks import admitted
from posterity.curvature import Categorical
from posterity.data.batches import Batch
from posterity.data.provenance import Provenance
from posterity.errors import BadData, NoData, UnsupportedLayer
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import Spending, klinv
from posterity.pacbayes.certificate import IN_PLAIN_WORDS, OF_POSTERIOR
from posterity.pacbayes.certify import divergence
from posterity.pacbayes.examples import CertificateData
from posterity.pacbayes.gibbs import drawn_network, zero_one
from posterity.pacbayes.optimise import Descent, FreeBlock, moved
from posterity.pacbayes.refusals import checked
from posterity.pacbayes.register import issued
from posterity.version import __version__

GAMMA = 0.5
"""How much of the step before is subtracted: fixed in advance."""
PLANNED = 0.01
"""KL that a step may cost, by certifying example: a bound is so steep at none that no posterior would leave its prior."""


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
    assumes: tuple[str, ...] = ()
    issued: int = 1
    """The how-manieth different certificate by any of these examples this was, in its process."""

    def __str__(self) -> str:
        lines = [f"error ≤ {self.bound:.4f}, at {100 * self.confidence:g} %   of {IN_PLAIN_WORDS[OF_POSTERIOR]}"]
        lines += [f"assumes   {text}" for text in self.assumes]
        for t, step in enumerate(self.steps, 1):
            lines.append(f"step {t}   n {step.n:,}   KL {step.kl:,.1f} nats   risk ≤ {step.bound:.4f}")
        if self.issued > 1:
            lines.append(
                f"{self.issued:,} different certificates by these data so far: the least needs grid={self.issued}"
            )
        return "\n".join([*lines, *(f"checked   {check}" for check in self.checks)])


@dataclass(frozen=True, eq=False)
class RecursiveResult:
    posterior: Gaussian
    certificate: RecursiveCertificate


def recursive_certificate(
    model: nn.Module,
    prior: Gaussian,
    data: tuple[Tensor, Tensor],
    confidence: float = 0.95,
    *,
    groups: Tensor | None = None,
    chunks: int = 4,
    epochs: int = 10,
    updates: int = 100,
    passes: int = 10,
    lr: float = 0.3,
    lr_scales: float = 0.3,
    batch_size: int = 256,
    grid: int = 1,
    vouched: str | None = None,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> RecursiveResult:
    """Learn from the data in chunks, each as large as all before it, and certify with all of them.

    Every posterior is optimised from the one before, on its chunk and all chunks before it, and certified by its chunk and
    all that follow. The last chunk is half the data.

    Args:
        model: the network's architecture, of linear layers and convolutions.
        prior: a Gaussian that has not seen the data.
        data: inputs and labels.
        confidence: with which the bound holds.
        groups: what belongs together, as for `pt.certify`: a group is in one chunk, and n counts groups.
        chunks: how many.
        epochs: over the data of each step.
        updates: that every step makes at least, by more epochs: one of a few batches is no measure of effort.
        passes: draws for every example.
        lr: the learning rate of the means, with momentum. (Adam moves all weights alike, and each of them costs KL.)
        lr_scales: the same for the logarithms of the variances.
        batch_size: of an update, and of draws at a time.
        grid: how many priors the choice was from, beyond what the library knows of.
        vouched: a text by which you answer for a prior of unknown past.
        generator: of the order, the training and the draws; by default its seed follows from prior and examples.
        progress: whether to show bars.
    Returns:
        A `RecursiveResult`: the certificate, and the posterior that it holds for.

    Example:
        >>> pt.pacbayes.recursive_certificate(model, prior, (x, y), chunks=4).certificate.bound
    """
    if chunks < 1:
        raise ValueError(f"chunks is at least 1, not {chunks}")
    examples = CertificateData.of(admitted(model, data).data, groups=groups)
    n = examples.n
    edges = [0, *(n >> (chunks - t) for t in range(1, chunks + 1))]
    if edges[1] < 1:
        raise NoData(
            f"{n} {'groups' if examples.grouped else 'examples'} cannot be cut into {chunks} chunks that double in size."
        )
    if n < examples.count and not examples.grouped:
        raise BadData(
            f"{examples.count - n:,} of {examples.count:,} examples are copies of others: chunks would share "
            "them. Give each once, or groups= of what belongs together."
        )
    found = checked(model, prior, prior, examples, Spending(1 - confidence), grid, vouched, generator)
    generator = found.generator
    # Units in a random order, each with its examples in a row: chunks are cut between units.
    place = torch.randperm(n, generator=generator, device=generator.device).cpu()[examples.units]
    order = place.argsort(stable=True)
    place = place[order]
    whole = Batch.joined(examples.batches).rows(order)
    x, y = whole.positional[0], whole.targets
    cuts = torch.searchsorted(place, torch.tensor(edges)).tolist()
    weights = 1 / place.bincount().double()[place]
    before, bound = prior, 1.0
    # Of draws from the posterior before: each of its errors serves two steps, whose bounds hold together by a union.
    errors = torch.empty(0)
    steps: list[Step] = []
    for t, (start, stop) in enumerate(pairwise(cuts)):
        known, later = (x[:stop], y[:stop]), (x[start:], y[start:])
        units = n - edges[t]
        # Each unit weighs the same, and so do the draws for one example.
        weight = weights[start:].repeat_interleave(passes) / (passes * units)
        descent = Descent(
            Categorical(),
            confidence,
            max(epochs, math.ceil(updates / math.ceil(stop / batch_size))),
            lr,
            lr_scales,
            batch_size,
            generator,
            progress,
            certifying=units,
            price=GAMMA ** (chunks - 1 - t),
            planned=PLANNED * units,
            optimiser=partial(torch.optim.SGD, momentum=0.9),
        )
        free = {name: FreeBlock(before, before, name, next(model.parameters())) for name in found.blocks}
        descent.run(model, found.blocks, free, known)
        after = moved(before, free, Provenance.of(known))
        kl = sum(divergence(after, before).values())
        now = _errors(model, after, later, passes, batch_size, generator, progress)
        levels = (-GAMMA, 0.0, 1 - GAMMA, 1.0) if t else (0.0, 1.0)
        losses = now - GAMMA * errors[-len(now) :] if t else now
        shares = tuple(min(1.0, float(weight @ (losses >= level - 1e-9).double().cpu())) for level in levels[1:])
        replicates = math.floor(1 / float(weight.max()) + 1e-6)
        bound = _bound(levels, shares, kl, units, replicates, found.spending, chunks, bound)
        steps.append(Step(units, replicates, kl, levels, shares, bound))
        before, errors = after, now
    record = RecursiveCertificate(
        bound,
        confidence,
        float(weight @ errors.double().cpu()),
        tuple(steps),
        prior.fingerprint(),
        before.fingerprint(),
        examples.fingerprint,
        found.notes,
        {"posterity": __version__, "torch": str(torch.__version__)},
        examples.assumes,
        issued(examples.hashes, (prior.fingerprint(), before.fingerprint(), bound, confidence)),
    )
    seen = prior.provenance.joined(Provenance.of(data))
    return RecursiveResult(replace(before, card=prior.card).with_provenance(seen), record)


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
def _errors(
    model: nn.Module,
    posterior: Gaussian,
    data: tuple[Tensor, Tensor],
    passes: int,
    batch_size: int,
    generator: torch.Generator | None,
    progress: bool,
) -> Tensor:
    """The errors of networks drawn from the posterior, one for every example and pass, in the examples' order."""
    like = next(model.parameters())
    network = drawn_network(model, posterior)
    found, size = [], max(1, batch_size // passes)
    bars = bar()
    bars.disable = not progress
    with evaluating(model):
        if not network.look(Batch((data[0][:32].to(like.device),), {}, data[1][:32])):
            raise UnsupportedLayer("recursive certificates need a network of linear layers and convolutions alone.")
        with bars:
            task = bars.add_task("drawing networks", total=len(data[1]))
            for images, labels in zip(data[0].split(size), data[1].split(size), strict=True):
                batch = Batch((images.to(like.device),), {}, labels.to(like.device))
                targets = batch.targets.repeat_interleave(passes)
                found.append(zero_one(Categorical(), network.outputs(batch, generator, passes), targets))
                bars.advance(task, len(labels))
    return torch.cat(found)
