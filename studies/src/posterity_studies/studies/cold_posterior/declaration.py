"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.shared.drawing import TREATMENTS
from posterity_studies.shared.priors import PRIORS
from posterity_studies.studies.cold_posterior.cells import ALL, cell, source
from posterity_studies.studies.cold_posterior.reading import verdict
from posterity_studies.studies.cold_posterior.showing import draw, tables

GAMMAS = [1e-3, 1e-5, 1e-8]

WARM = [1.0, 0.3, 0.1, 1e-2, 1e-3]

TAUS = {treatment: [*WARM, 1e-5, 1e-7, 1e-9] if treatment in ("free", "pinned") else WARM for treatment in TREATMENTS}

FEW_TAUS = dict.fromkeys(TREATMENTS, WARM)

ALL_TAUS = {treatment: [0.3, *(10.0**-i for i in range(10))] for treatment in TREATMENTS}


def curves(
    seeds: int,
    shots: Sequence[int],
    gammas: Sequence[float],
    trained: float,
    taus: Mapping[str, Sequence[float]],
    examples: int,
    tested: int,
    draws: int,
    epochs: int,
) -> list[dict[str, Any]]:
    """The three priors; the mode is trained with `trained`, beside which smaller γ make no difference to it."""
    return grid(
        seed=range(seeds), shots=shots, prior=list(PRIORS), gammas=[list(gammas)], trained=[trained], taus=[dict(taus)],
        examples=[examples], tested=[tested], draws=[draws], epochs=[epochs],
    )  # fmt: skip


STUDY = Study(
    id="cold-posterior",
    claim="The learned prior needs less tempering: at τ = 0.1 its draws are within a point of τ → 0, isotropic priors lose > 10.",
    paper="Figure 2c and Figure 8, left",
    data="MNIST (60,000) → NotMNIST's training images, all (10,656, and 1,184 held out) or 100 per class, LeNet-5; per seed 500 "
    "test images and 50 draws",
    grid={
        Preset.smoke: curves(1, [10], [1e-5], 1e-5, {"free": [0.1, 1e-7], "shrunk 0.3": [0.1]}, 2000, 100, 5, 1),
        Preset.cpu: [
            *curves(5, [ALL], GAMMAS, 1e-5, TAUS, 60000, 500, 50, 8),
            *curves(5, [100], [1e-5], 1e-5, FEW_TAUS, 60000, 500, 50, 8),
        ],
        Preset.paper: [
            *curves(25, [ALL, 100], GAMMAS, 1e-5, ALL_TAUS, 60000, 10000, 100, 100),
            *curves(25, [ALL], [1.0], 1.0, ALL_TAUS, 60000, 10000, 100, 100),
        ],
    },
    cell=cell,
    source=source,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "The same noise at every temperature, scaled. On all images the mode is trained for 8 epochs of Adam (lr 1e-3, best of "
        "them restored), on 100 per class for 200 steps.",
        "A dead unit is one that no training image activates: with the learned prior and all images 12 to 16 of 120 and 1 to 5 "
        "of 84. The loss is flat in the weights that lead into it, so no data adds curvature, and in the exact sum they are "
        "drawn with variance τ/γ: 10,000 at τ = 0.1 and γ = 1e-5.",
        "With either of two treatments γ has no effect, as in the paper's figure. Shrinkage (Gaussian.shrunk) moves every "
        "Kronecker factor towards its mean eigenvalue and keeps the sum exact. One nearest pair with a jitter of 10 % is what "
        "the paper's algorithm comes to when its factors need that much to be decomposed in float32. The shares were tried on "
        "two seeds before this run; all are shown.",
        "The linearised predictive is shown by its accuracy alone: the probit link hardly ever changes which class "
        "wins. How well it is calibrated is the calibration study's matter.",
        "The paper trains on 54,000 NotMNIST images, we on 10,656: a posterior from five times the data is narrower, "
        "and loses less at warm temperatures.",
    ),
)
