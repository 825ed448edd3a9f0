"""The main job in small: a prior learned on one task, put to use on the next, beside what else one could do.

`source` learns the prior, `methods` are the four contenders, `cells` tune and test them on a few images.
"""

from posterity_studies.demo.declaration import SIZES, demo
from posterity_studies.demo.page import page
from posterity_studies.demo.reading import on_temperature, verdict
from posterity_studies.demo.showing import KEY
from posterity_studies.demo.source import learn_prior

__all__ = ["KEY", "SIZES", "demo", "learn_prior", "on_temperature", "page", "verdict"]
