"""All studies by name."""

from __future__ import annotations

from posterity.errors import UnknownStudy
from posterity.studies.bound_shape import BOUND_SHAPE
from posterity.studies.bounds import BOUNDS
from posterity.studies.calibration import CALIBRATION
from posterity.studies.certificates import CERTIFICATES
from posterity.studies.cold_posterior import COLD_POSTERIOR
from posterity.studies.continual import CONTINUAL
from posterity.studies.declaration import Study
from posterity.studies.exact_algebra import EXACT_ALGEBRA
from posterity.studies.kfoc_quality import KFOC_QUALITY
from posterity.studies.kronecker import KRONECKER
from posterity.studies.regression import REGRESSION
from posterity.studies.small_data import SMALL_DATA
from posterity.studies.transfer import TRANSFER

STUDIES: dict[str, Study] = {
    study.id: study
    for study in (
        BOUNDS,
        BOUND_SHAPE,
        CALIBRATION,
        CERTIFICATES,
        COLD_POSTERIOR,
        CONTINUAL,
        EXACT_ALGEBRA,
        KFOC_QUALITY,
        KRONECKER,
        REGRESSION,
        SMALL_DATA,
        TRANSFER,
    )
}


def find(name: str) -> Study:
    try:
        return STUDIES[name]
    except KeyError:
        raise UnknownStudy(f'there is no study "{name}": choose one of {", ".join(sorted(STUDIES))}.') from None
