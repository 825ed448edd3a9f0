"""How warm a posterior may be before its draws lose accuracy (the paper's Figure 2c and Figure 8, left)."""

from __future__ import annotations

from posterity.studies.cold_posterior.cells import cell, curves
from posterity.studies.cold_posterior.plot import draw
from posterity.studies.cold_posterior.tables import tables
from posterity.studies.cold_posterior.verdict import verdict
from posterity.studies.declaration import Preset, Study

GAMMAS = [1e-3, 1e-5, 1e-8]
TAUS = [1.0, 0.3, 0.1, 1e-2, 1e-3, 1e-5, 1e-7, 1e-9]
ALL_TAUS = [0.3, *(10.0**-i for i in range(10))]

COLD_POSTERIOR = Study(
    id="cold-posterior",
    claim="The learned prior needs less tempering: at τ = 0.1 its draws are within a point of τ → 0, isotropic priors lose > 10.",
    paper="Figure 2c and Figure 8, left",
    data="MNIST (60,000) → all of NotMNIST's training images (10,656 and 1,184 held out), LeNet-5; per seed 200 test images "
    "and 50 draws",
    grid={
        Preset.smoke: curves(1, [1e-5], 1e-5, [0.1, 1e-7], 2000, 100, 5, 1),
        Preset.cpu: curves(5, GAMMAS, 1e-5, TAUS, 60000, 200, 50, 8),
        Preset.paper: [
            *curves(25, GAMMAS, 1e-5, ALL_TAUS, 60000, 10000, 100, 100),
            *curves(25, [1.0], 1.0, ALL_TAUS, 60000, 10000, 100, 100),
        ],
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "The same noise at every temperature, scaled. The mode is trained for 8 epochs of Adam (lr 1e-3, best of them "
        "restored).",
        "A dead unit is one that no training image activates: 12 of 120 and 3 of 84 here. The loss is flat in the "
        "weights that lead into it, so no data adds curvature, and they are drawn with variance τ/γ: 10,000 at τ = 0.1 "
        "and γ = 1e-5. Left alone, they stay at the mode. How the authors' network avoided this is not known to us; "
        "with fewer dead units it would.",
        "The linearised predictive is shown by its accuracy alone: the probit link hardly ever changes which class "
        "wins. How well it is calibrated is the calibration study's matter.",
        "The paper trains on 54,000 NotMNIST images, we on 10,656: a posterior from five times the data is narrower, "
        "and bears warmer temperatures.",
    ),
)
