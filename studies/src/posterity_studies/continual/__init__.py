"""Continual learning from few images, and the standard split of MNIST."""

from posterity_studies.continual.declaration import CONTINUAL

__all__ = ["CONTINUAL"]
