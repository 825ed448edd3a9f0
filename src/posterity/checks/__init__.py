"""The border: what a user gives is looked at once, before anything is computed, and what is wrong is said in one sentence."""

from posterity.checks.admitted import Admitted, admitted
from posterity.checks.choices import check_estimator, check_likelihood
from posterity.checks.networks import check_network
from posterity.checks.numbers import check_finite, not_finite
from posterity.checks.running import explained

__all__ = [
    "Admitted",
    "admitted",
    "check_estimator",
    "check_finite",
    "check_likelihood",
    "check_network",
    "explained",
    "not_finite",
]
