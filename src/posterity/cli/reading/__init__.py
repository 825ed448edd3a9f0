"""Data as people have it on disk: folders of images, .npz, tables, Hugging Face data sets, and sets known by name."""

from posterity.cli.reading.examples import DataRecipe, ReadOptions, TensorExamples
from posterity.cli.reading.read import Preview, look, read

__all__ = ["DataRecipe", "Preview", "ReadOptions", "TensorExamples", "look", "read"]
