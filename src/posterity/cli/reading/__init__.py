"""Data as people have it on disk: folders of images, .npz, CSV, Hugging Face data sets, and sets known by name."""

from posterity.cli.reading.examples import Examples, Recipe, Wish
from posterity.cli.reading.read import Look, look, read

__all__ = ["Examples", "Look", "Recipe", "Wish", "look", "read"]
