"""The border: what a user gives is looked at once, before anything is computed, and what is wrong is said in one sentence."""

from posterity.checks.admitted import (
    ValidatedData,
    admitted,
    check_estimator,
    check_finite,
    check_groups,
    check_likelihood,
    check_network,
    check_prior,
    not_finite,
    with_known_options,
)
from posterity.checks.explained import explained

__all__ = [
    "ValidatedData",
    "admitted",
    "check_estimator",
    "check_finite",
    "check_groups",
    "check_likelihood",
    "check_network",
    "check_prior",
    "explained",
    "not_finite",
    "with_known_options",
]
