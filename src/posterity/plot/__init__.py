"""Pictures of what was learned: each function takes matplotlib axes, or makes some, and gives them back.

matplotlib is loaded when a picture is drawn: `pip install matplotlib`.
"""

from posterity.plot.certificates import waterfall
from posterity.plot.classes import confusion, coverage, reliability
from posterity.plot.curves import training
from posterity.plot.regression import regression
from posterity.plot.spectra import spectrum
from posterity.plot.unknown import gallery, unknown

__all__ = [
    "confusion",
    "coverage",
    "gallery",
    "regression",
    "reliability",
    "spectrum",
    "training",
    "unknown",
    "waterfall",
]
