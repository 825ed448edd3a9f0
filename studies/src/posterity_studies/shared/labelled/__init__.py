"""Labelled sets as rows of frozen features: texts, photographs, tables and series, with the names of their classes."""

from posterity_studies.shared.labelled.sets import NAMED, REPORTED, SETTLING, LabelledSet, labelled, split

__all__ = ["NAMED", "REPORTED", "SETTLING", "LabelledSet", "labelled", "split"]
