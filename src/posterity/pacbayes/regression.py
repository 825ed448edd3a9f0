"""A certificate for regressions: the squared error, clipped. No belief about the noise or its tails is needed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posterity.curvature import GaussianNoise
from posterity.data import Data
from posterity.errors import BadTargets, NotFinite
from posterity.gaussian import Gaussian
from posterity.pacbayes.bounds import Spending, klinv
from posterity.pacbayes.certify import divergence, rebuilt
from posterity.pacbayes.examples import CertificateData
from posterity.pacbayes.gibbs import Weighted, counted, drawn_outputs
from posterity.pacbayes.refusals import checked


@dataclass(frozen=True)
class ClippedCertificate:
    """A bound on the expected clipped squared error min(‖y − f‖², B) of networks drawn from the posterior."""

    bound: float
    clip: float
    confidence: float
    n: int
    replicates: int
    kl: float
    gibbs: float
    """Mean clipped loss of single draws."""
    data: str
    checks: tuple[str, ...]
    assumes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"E min(‖y − f‖², {self.clip:g}) ≤ {self.bound:.4g} at {100 * self.confidence:g} %   "
            f"(draws {self.gibbs:.4g}, KL {self.kl:,.1f} nats, n {self.n:,}, {self.replicates:,} replicates)\n"
            + "\n".join(f"assumes   {text}" for text in self.assumes)
        )


@torch.no_grad()
def certify_clipped(
    model: nn.Module,
    posterior: Gaussian,
    prior: Gaussian,
    data: Data,
    clip: float,
    confidence: float = 0.95,
    *,
    groups: Tensor | None = None,
    passes: int = 10,
    grid: int = 1,
    vouched: str | None = None,
    generator: torch.Generator | None = None,
) -> ClippedCertificate:
    """Certify the squared error, clipped at `clip` (fixed before the data was seen): klinv of the loss divided by it.

    klinv holds for any loss in [0, 1], not only for errors; with `groups`, for the mean loss of a group. No assumption on the
    noise is needed, and none on the tails: what lies beyond the clip counts as the clip.
    """
    if not (clip > 0 and math.isfinite(clip)):
        raise ValueError(f"the loss is clipped at a positive number, not {clip}")
    examples = CertificateData.of(data, 64, groups)
    found = checked(model, posterior, prior, examples, Spending(1 - confidence), grid, vouched, generator)
    posterior, prior = rebuilt(posterior), rebuilt(prior)
    kl, spending = sum(divergence(posterior, prior).values()), found.spending
    readings = [_clipped(model, posterior, r.pieces(), clip, passes, found.generator) for r in examples.readings()]
    bounds = []
    for mean, replicates in readings:
        upper = klinv(min(1.0, mean), math.log(1 / spending.draws) / replicates)
        bounds.append(klinv(upper, (kl + math.log(2 * math.sqrt(examples.n) / spending.bound)) / examples.n))
    worst = max(range(len(bounds)), key=lambda i: bounds[i])
    mean, replicates = readings[worst]
    return ClippedCertificate(
        clip * bounds[worst],
        clip,
        confidence,
        examples.n,
        replicates,
        kl,
        clip * mean,
        examples.fingerprint,
        (*found.notes, f"δ: {spending}"),
        examples.assumes,
    )


def _clipped(
    model: nn.Module,
    posterior: Gaussian,
    held: Weighted,
    clip: float,
    passes: int,
    generator: torch.Generator | None,
) -> tuple[float, int]:
    """The mean clipped loss of single draws as a share of the clip, and how many replicates it is of."""
    total, likelihood, per_example = 0.0, GaussianNoise(1.0), True
    for portion in drawn_outputs(
        model, posterior, held, passes=passes, batch_size=64, generator=generator, progress=False
    ):
        per_example = portion.per_example
        if not portion.targets.is_floating_point():
            raise BadTargets("a squared error needs targets in floating point: for classes there is `certify`.")
        outputs, targets = likelihood.check(portion.outputs, portion.targets)
        loss = (outputs - targets).double().reshape(len(targets), -1).square().sum(1)
        if not bool(torch.isfinite(outputs).all()):
            raise NotFinite("the network's outputs are NaN or infinite for some examples: they have no error.")
        total += portion.mean(loss.clamp_max(clip) / clip)
    return total, counted(held, passes, per_example)
