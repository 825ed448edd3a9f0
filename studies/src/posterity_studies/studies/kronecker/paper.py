"""The paper's own figures: the text of its appendix, the convergence table, and the curves of Figure 3."""

from __future__ import annotations

from typing import NamedTuple

OVERALL = {"power": (0.01020, 0.03129), "sum": (0.10167, 0.22935)}
"""Mean and spread of the relative error over all sizes, scales, weight decays and seeds."""

ITERATIONS = ((0.793, 0.010), *[(0.049, 0.001)] * 6)
"""Mean and spread of the relative error in iterations 1 to 7."""

FLOOR = 2e-7
"""Below this the curves show the rounding of float32, in which the paper's figures were computed."""


class Point(NamedTuple):
    """A point of a curve with its 95 % interval. Where the curve as printed leaves a point out, the mean is None."""

    x: float
    mean: float | None
    low: float
    high: float

    @property
    def middle(self) -> float:
        """The mean, or the middle of the interval where none is printed."""
        return self.mean if self.mean is not None else (self.low + self.high) / 2


CURVES: dict[tuple[str, str], tuple[Point, ...]] = {
    ("size", "sum"): (
        Point(2, 0.1174, 0.1122, 0.1225),
        Point(3, 0.1071, 0.1027, 0.1117),
        Point(4, 0.1024, 0.09794, 0.1071),
        Point(5, 0.1015, 0.09725, 0.1057),
        Point(6, 0.1008, 0.09676, 0.105),
        Point(7, None, 0.09746, 0.1054),
        Point(8, 0.1019, 0.09738, 0.1063),
        Point(9, 0.1016, 0.09745, 0.1056),
        Point(10, 0.1015, 0.09726, 0.106),
        Point(11, 0.1007, 0.09677, 0.1048),
        Point(12, None, 0.09635, 0.1046),
        Point(13, 0.1002, 0.09621, 0.1043),
        Point(14, 0.09984, 0.09554, 0.1041),
        Point(15, 0.09922, 0.09537, 0.1035),
        Point(16, 0.09904, 0.09486, 0.1032),
        Point(17, None, 0.09481, 0.1027),
        Point(18, 0.09844, 0.09407, 0.1026),
        Point(19, 0.09793, 0.0939, 0.1023),
    ),
    ("size", "power"): (
        Point(2, 0.006859, 0.00642, 0.007279),
        Point(3, 0.00892, 0.008435, 0.009439),
        Point(4, 0.009531, 0.00904, 0.01008),
        Point(5, 0.01002, 0.009508, 0.01059),
        Point(6, 0.01045, 0.009863, 0.01105),
        Point(7, 0.01079, 0.01017, 0.0114),
        Point(8, 0.01097, 0.01041, 0.01162),
        Point(9, 0.01091, 0.01035, 0.01154),
        Point(10, 0.01082, 0.01024, 0.01143),
        Point(11, 0.01061, 0.01002, 0.01124),
        Point(12, 0.01053, 0.009951, 0.01112),
        Point(13, 0.0105, 0.009953, 0.011),
        Point(14, 0.01048, 0.009925, 0.01108),
        Point(15, 0.01042, 0.009849, 0.01097),
        Point(16, 0.01042, 0.009846, 0.011),
        Point(17, 0.01045, 0.009821, 0.01106),
        Point(18, None, 0.009835, 0.01107),
        Point(19, 0.01044, 0.00984, 0.01107),
    ),
    ("scale", "sum"): (
        Point(1e-05, 0.1562, 0.1531, 0.1595),
        Point(0.0001, 0.2256, 0.2217, 0.2301),
        Point(0.001, 0.2358, 0.2311, 0.2398),
        Point(0.01, 0.2259, 0.2216, 0.2303),
        Point(0.1, 0.1418, 0.138, 0.1456),
        Point(1.0, 0.02801, 0.02662, 0.02961),
        Point(10.0, 0.002926, 0.002768, 0.003101),
        Point(100.0, 0.00031, 0.0002868, 0.0003355),
        Point(1000.0, 3.398e-05, 3.027e-05, 3.891e-05),
        Point(10000.0, 3.1e-06, 2.888e-06, 3.33e-06),
    ),
    ("scale", "power"): (
        Point(1e-05, 0.01608, 0.01562, 0.01653),
        Point(0.0001, 0.02303, 0.02243, 0.02364),
        Point(0.001, 0.02385, 0.02318, 0.02446),
        Point(0.01, 0.02363, 0.02305, 0.02428),
        Point(0.1, 0.01441, 0.01393, 0.01496),
        Point(1.0, 0.0009699, 0.0008798, 0.001062),
        Point(10.0, 1.444e-05, 1.179e-05, 1.768e-05),
        Point(100.0, 2.496e-07, 2.191e-07, 2.854e-07),
        Point(1000.0, 1.006e-07, 9.975e-08, 1.014e-07),
        Point(10000.0, 9.934e-08, 9.865e-08, 1e-07),
    ),
    ("gamma", "sum"): (
        Point(1e-10, 0.007733, 0.00748, 0.008004),
        Point(1e-09, 0.02418, 0.02337, 0.02506),
        Point(1e-08, 0.06846, 0.06614, 0.07087),
        Point(1e-07, 0.1111, 0.1076, 0.1146),
        Point(1e-06, 0.1264, 0.1227, 0.1299),
        Point(1e-05, 0.1302, 0.1265, 0.1339),
        Point(0.0001, 0.1296, 0.1262, 0.1334),
        Point(0.001, 0.1302, 0.1262, 0.1339),
        Point(0.01, 0.1297, 0.1258, 0.1334),
        Point(0.1, 0.1304, 0.1268, 0.1345),
        Point(1.0, 0.1304, 0.1267, 0.1338),
    ),
    ("gamma", "power"): (
        Point(1e-10, 0.0001318, 0.0001266, 0.000138),
        Point(1e-09, 0.00121, 0.001156, 0.00126),
        Point(1e-08, 0.007409, 0.007092, 0.007745),
        Point(1e-07, 0.01185, 0.01142, 0.01228),
        Point(1e-06, 0.01301, 0.01249, 0.01353),
        Point(1e-05, 0.01316, 0.01269, 0.01371),
        Point(0.0001, None, 0.01258, 0.01366),
        Point(0.001, 0.01305, 0.01255, 0.01355),
        Point(0.01, None, 0.01257, 0.01364),
        Point(0.1, 0.01307, 0.01255, 0.01359),
        Point(1.0, 0.0131, 0.01258, 0.01359),
    ),
    ("terms", "sum"): (
        Point(2, 1.013, 0.9853, 1.039),
        Point(3, 1.915, 1.879, 1.949),
        Point(4, 2.829, 2.786, 2.872),
        Point(5, 3.796, 3.754, 3.84),
        Point(6, 4.678, 4.634, 4.72),
        Point(7, 5.673, 5.627, 5.724),
        Point(8, 6.611, 6.565, 6.656),
        Point(9, 7.645, 7.604, 7.691),
    ),
    ("terms", "power"): (
        Point(2, 0.268, 0.2526, 0.2834),
        Point(3, 0.3097, 0.2974, 0.3207),
        Point(4, 0.317, 0.3079, 0.3263),
        Point(5, 0.3162, 0.3075, 0.3251),
        Point(6, 0.3038, 0.2961, 0.3111),
        Point(7, 0.2974, 0.2904, 0.305),
        Point(8, 0.2864, 0.2805, 0.2924),
        Point(9, 0.278, 0.2725, 0.2843),
    ),
}
"""Figure 3 by panel and method, to four digits."""
