"""Results as HTML pages that need nothing but themselves."""

from posterity.pages.drawings import svg
from posterity.pages.parts import document, facts, numbers, panels, table
from posterity.pages.results import certificate_page, evaluation_page, fit_page, prediction_page, prior_page
from posterity.pages.style import STYLE

__all__ = [
    "STYLE",
    "certificate_page",
    "document",
    "evaluation_page",
    "facts",
    "fit_page",
    "numbers",
    "panels",
    "prediction_page",
    "prior_page",
    "svg",
    "table",
]
