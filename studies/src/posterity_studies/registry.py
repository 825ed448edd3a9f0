"""All studies by name."""

from __future__ import annotations

from posterity_studies.bound_shape import BOUND_SHAPE
from posterity_studies.bounds import BOUNDS
from posterity_studies.calibration import CALIBRATION
from posterity_studies.certificates import CERTIFICATES
from posterity_studies.cold_posterior import COLD_POSTERIOR
from posterity_studies.continual import CONTINUAL
from posterity_studies.declaration import Study
from posterity_studies.errors import UnknownStudy
from posterity_studies.exact_algebra import EXACT_ALGEBRA
from posterity_studies.kfoc_quality import KFOC_QUALITY
from posterity_studies.kronecker import KRONECKER
from posterity_studies.regression import REGRESSION
from posterity_studies.small_data import SMALL_DATA
from posterity_studies.transfer import TRANSFER

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
