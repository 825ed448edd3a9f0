"""All studies by name: every folder in `posterity_studies/studies/` is one."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from posterity_studies.engine.declaration import Study
from posterity_studies.errors import UnknownStudy

FOLDER = "posterity_studies.studies"


def _declared() -> dict[str, Study]:
    found = (
        import_module(f"{FOLDER}.{module.name}.declaration").STUDY
        for module in pkgutil.iter_modules(import_module(FOLDER).__path__)
    )
    return {study.id: study for study in sorted(found, key=lambda study: study.id)}


STUDIES: dict[str, Study] = _declared()


def find(name: str) -> Study:
    """The study of that name."""
    try:
        return STUDIES[name]
    except KeyError:
        raise UnknownStudy(f'there is no study "{name}": choose one of {", ".join(STUDIES)}.') from None
