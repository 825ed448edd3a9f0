"""Every figure, table, lemma and claim of the paper in its order, with what we find: the page `docs/paper.md`."""

from posterity_studies.claims.page import page
from posterity_studies.claims.rows import ROWS, Row

__all__ = ["ROWS", "Row", "page"]
