"""How weights are drawn around a mode: what is done about directions without curvature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from posterity.algebra import Matrix
from posterity.errors import NotPositiveDefinite
from posterity.gaussian import Gaussian

TREATMENTS = {
    "free": "exact sum",
    "pinned": "dead units left alone",
    "joined 0.1": "one pair, jitter 10 %",
    "shrunk 0.1": "factors shrunk by 10 %",
    "shrunk 0.3": "factors shrunk by 30 %",
    "shrunk 0.5": "factors shrunk by half",
}
"""What is done to a posterior before it is drawn: nothing; weights into dead units stay at the mode; its sum is replaced by the
nearest single pair, as in the paper, with a jitter so that the factors can be decomposed; every term's factors are shrunk."""


def draw_noise(
    treatment: str, posterior: Gaussian, dead: Mapping[str, Tensor], draws: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Draws around zero from a posterior's blocks."""
    match treatment.split():
        case ["free"] | ["pinned"]:
            drawn = posterior
        case ["shrunk", weight]:
            drawn = posterior.shrunk(float(weight))
        case ["joined", jitter]:
            pairs = posterior.compress().precision
            drawn = replace(posterior, precision={n: _definite(pair, float(jitter)) for n, pair in pairs.items()})
        case _:
            raise ValueError(f"there is no treatment {treatment!r}")
    noise = {name: matrix.sample(draws, generator=generator) for name, matrix in drawn.precision.items()}
    if treatment == "pinned":
        for name, which in dead.items():
            noise[name][:, which] = 0
    return noise


def _definite(pair: Matrix, jitter: float) -> Matrix:
    """Jitter tenfold until the factors can be decomposed, as the published code does."""
    while True:
        try:
            jittered = pair.jittered(jitter)
            jittered.logdet()
        except NotPositiveDefinite:
            jitter *= 10
        else:
            return jittered
