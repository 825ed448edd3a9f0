"""The paper's ladder of bounds on NotMNIST (its Fig. 2a), with certificates beside its estimates."""

from posterity_studies.bounds.declaration import BOUNDS

__all__ = ["BOUNDS"]
