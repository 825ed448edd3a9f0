"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.shared.shots import MADE_UP
from posterity_studies.studies.cold_posterior_large.cells import cell
from posterity_studies.studies.cold_posterior_large.methods import PRIORS, WAYS
from posterity_studies.studies.cold_posterior_large.reading import verdict
from posterity_studies.studies.cold_posterior_large.showing import draw, tables

GAMMAS = [1e-3, 1e-5]
EVERY = [10.0**-k for k in range(16)]
TAUS = {
    "free": [1.0, 1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-11, 1e-13, 1e-15],
    "below": [1.0, 1e-1, 1e-2, 1e-3, 1e-5, 1e-7, 1e-9, 1e-11],
    "jvp": EVERY,
    "probit": EVERY,
}
"""Draws cost a pass through the network for every temperature, the linear ways nothing."""
ALL_TAUS = dict.fromkeys(WAYS, EVERY)


def _cells(
    network: str,
    seeds: Sequence[int],
    taus: Mapping[str, Sequence[float]],
    gammas: Sequence[float] = GAMMAS,
    **sizes: Any,
) -> list[dict[str, Any]]:
    """Seed by seed, so that a run that is cut short has something of everything."""
    training = {name: sizes.pop(name) for name in ("draws", "epochs", "lr")}
    temperatures = {way: list(of_way) for way, of_way in taus.items()}
    made = []
    for seed in seeds:
        both = [{"network": network, "seed": seed, "prior": kind, **sizes} for kind in PRIORS]
        made += [{**one, "who": "draws", "gammas": list(gammas), "taus": temperatures, **training} for one in both]
        made += [{**one, "who": "function space"} for one in both]
    return made


STUDY = Study(
    id="cold-posterior-large",
    claim="On ResNet-50 too the learned prior needs less tempering than an isotropic one: its draws are level with the mode at "
    "warmer temperatures. Predictives in function space need none.",
    paper="Figure 8, right",
    data="ImageNet → CIFAR-10, 20 training pictures a class, 100 test pictures; ResNet-50's last stage and a new head",
    grid={
        Preset.smoke: _cells(
            MADE_UP,
            [0],
            {way: [1.0, 1e-4] for way in WAYS},
            size=96,
            classes=4,
            shots=3,
            tested=4,
            draws=2,
            epochs=2,
            lr=1e-3,
        ),
        Preset.cpu: _cells(
            "last stage", range(3), TAUS, size=96, classes=10, shots=20, tested=10, draws=8, epochs=3, lr=1e-4
        ),
        Preset.paper: _cells(
            "whole", range(5), ALL_TAUS, size=224, classes=10, shots=100, tested=100, draws=100, epochs=20, lr=1e-4
        ),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(),
)
