"""What is claimed, and which cells test it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from posterity_studies.engine.declaration import Preset, Study
from posterity_studies.studies.untouched.cells import REGRESSIONS, cell
from posterity_studies.studies.untouched.reading import verdict
from posterity_studies.studies.untouched.showing import draw, tables

CLASSES = (
    "vehicle", "wine", "sonar", "pima", "segment", "phoneme", "wdbc", "ionosphere", "bupa", "heart", "vowel", "magic",
)  # fmt: skip
TRANSFERS = ("penbased", "letter", "satimage", "optdigits", "movement_libras", "texture")


def _cells(
    classes: Sequence[str], regressions: Iterable[str], transfers: Sequence[str], each: Sequence[int], draws: int
) -> list[dict[str, Any]]:
    kinds = [("classes", name, 0) for name in classes] + [("regression", name, 0) for name in regressions]
    kinds += [("transfer", name, n) for name in transfers for n in each]
    return [{"kind": kind, "set": name, "each": n, "draw": draw} for draw in range(draws) for kind, name, n in kinds]


STUDY = Study(
    id="untouched",
    claim="On tables that took no part in any choice, the default call is nowhere significantly behind tuned plain training.",
    data="twelve tables with classes, six regressions, six tables whose classes are halved into source and task",
    grid={
        Preset.smoke: _cells(["iris"], [], [], [], 1),
        Preset.cpu: _cells(CLASSES, REGRESSIONS, TRANSFERS, (1, 3, 10), 2),
        Preset.paper: _cells(CLASSES, REGRESSIONS, TRANSFERS, (1, 3, 10), 10),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "A network with two hidden layers of 50. Plain training chooses weight decay and steps by a fifth of the examples, and "
        "trains again on all. After a source it chooses rate and steps by folds of the few; where there is one a class, by the "
        "test examples themselves. The ensemble is five of it.",
        "Up to 400 examples of a classification, nine tenths of a regression, 2,000 of a source; up to 2,000 others to test by.",
        "KEEL's tables and R's, from packages of the Python index that are read as archives; none of their code is run.",
    ),
)
