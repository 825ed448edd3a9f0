"""Continual learning from few images, and the standard split of MNIST."""

from posterity.studies.continual.declaration import CONTINUAL

__all__ = ["CONTINUAL"]
