"""Integrations with other libraries: scikit-learn's estimators and laplace-torch's posteriors. Each is imported when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posterity.wrappers.laplace_torch import from_laplace, to_laplace

if TYPE_CHECKING:
    from posterity.wrappers.scikit_learn import PosteriorClassifier, PosteriorRegressor

__all__ = ["PosteriorClassifier", "PosteriorRegressor", "from_laplace", "to_laplace"]


def __getattr__(name: str) -> Any:
    if name in ("PosteriorClassifier", "PosteriorRegressor"):
        from posterity.wrappers import scikit_learn

        return getattr(scikit_learn, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
