"""Data as people have it on disk: folders of images, .npz, tables, Hugging Face data sets, and sets known by name."""

from posterity.cli.reading.examples import Examples, ReadOptions, Recipe
from posterity.cli.reading.read import Look, look, read

__all__ = ["Examples", "Look", "ReadOptions", "Recipe", "look", "read"]
