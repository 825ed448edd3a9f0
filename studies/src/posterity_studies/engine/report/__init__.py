"""All studies on one page that needs nothing but itself: claim, verdict, our figures beside the paper's."""

from posterity_studies.engine.report.markdown import markdown
from posterity_studies.engine.report.page import report

__all__ = ["markdown", "report"]
