"""All studies by name."""

from __future__ import annotations

from posterity.errors import UnknownStudy
from posterity.studies.continual import CONTINUAL
from posterity.studies.declaration import Study
from posterity.studies.kfoc_quality import KFOC_QUALITY
from posterity.studies.kronecker import KRONECKER
from posterity.studies.transfer import TRANSFER

STUDIES: dict[str, Study] = {study.id: study for study in (CONTINUAL, KFOC_QUALITY, KRONECKER, TRANSFER)}


def find(name: str) -> Study:
    try:
        return STUDIES[name]
    except KeyError:
        raise UnknownStudy(f'there is no study "{name}": choose one of {", ".join(sorted(STUDIES))}.') from None
