"""A watch meets a new wearer: a prior learned from nine people, put to use on a tenth who shows a few seconds of each exercise.

`source` learns the prior, `methods` are the contenders, `cells` test them on one wearer, `page` shows what came out.
"""

from posterity_studies.demo.declaration import study
from posterity_studies.demo.doubts import headline, sentences
from posterity_studies.demo.page import five_lines, page
from posterity_studies.demo.reading import findings, part, typical
from posterity_studies.demo.showing import KEY, table
from posterity_studies.demo.source import network, prior_of
from posterity_studies.shared.watch import meet

__all__ = [
    "KEY",
    "findings",
    "five_lines",
    "headline",
    "meet",
    "network",
    "page",
    "part",
    "prior_of",
    "sentences",
    "study",
    "table",
    "typical",
]
