"""All studies on one page that needs nothing but itself: claim, verdict, our figures beside the paper's."""

from posterity.studies.report.markdown import markdown
from posterity.studies.report.page import report

__all__ = ["markdown", "report"]
