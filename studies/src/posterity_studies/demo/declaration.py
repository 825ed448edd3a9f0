"""The demo as a study: a cell for each wearer, one for the ensemble, which takes five times as long, and a portrait."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from posterity_studies.demo.cells import cell
from posterity_studies.demo.methods import STEPS
from posterity_studies.demo.showing import draw, tables
from posterity_studies.demo.source import EPOCHS
from posterity_studies.demo.unknown import UNKNOWN
from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.shared.watch import EXERCISES, WEARERS

SECONDS = (2, 4, 8)
EDITION = 4
"""Raise it when the library predicts otherwise: all but the ensemble is then computed again."""


def study(folder: Path, near: int | None = None) -> Study:
    """The study with its priors in this folder. `cpu` is what the demo computes, `paper` has what takes long too: the
    ensemble, and the other six exercises as the unknown one.

    `near` is a wearer to look at from near, who is known only when all have been scored.
    """
    return Study(
        id="demo",
        claim="A recogniser learned from nine people serves a tenth who shows a few seconds of each exercise.",
        grid={
            Preset.smoke: _cells(WEARERS[:2], near, seconds=[SECONDS[0]], epochs=1, steps=STEPS[:2]),
            Preset.cpu: _cells(WEARERS, near, seconds=SECONDS, epochs=EPOCHS, steps=STEPS),
            Preset.paper: _cells(WEARERS, near, seconds=SECONDS, epochs=EPOCHS, steps=STEPS, whole=True),
        },
        cell=partial(cell, folder),
        tables=tables,
        draw=draw,
        data="seglearn's watch recordings: 10 wearers, 7 exercises, both arms, 50 Hz; a convolutional network of 32,000 weights",
        version=4,
    )


def _cells(
    wearers: Sequence[int],
    near: int | None,
    seconds: Sequence[int],
    epochs: int,
    steps: Sequence[int],
    whole: bool = False,
) -> list[dict[str, object]]:
    common = {"seconds": list(seconds), "epochs": epochs, "steps": list(steps)}
    edition = {"edition": EDITION}
    kept_back = [UNKNOWN, *(e for e in range(len(EXERCISES)) if e != UNKNOWN)] if whole else [UNKNOWN]
    return [
        *({"part": "scores", "wearer": w, "unknown": UNKNOWN} | common | edition for w in wearers),
        *({"part": "unknown", "wearer": w, "unknown": e} | common | edition for e in kept_back for w in wearers),
        *({"part": "ensemble", "wearer": w, "unknown": UNKNOWN} | common for w in wearers if whole),
        *({"part": "portrait", "wearer": w, "unknown": UNKNOWN} | common | edition for w in (near,) if w is not None),
    ]
