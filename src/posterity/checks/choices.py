"""Choices are values: a string or a class in their place is answered with what to write."""

from __future__ import annotations

from posterity.errors import WrongChoice

LIKELIHOODS = (
    "pt.Categorical() for classes, pt.GaussianNoise() for numbers, pt.Bernoulli() for independent yes-or-no labels"
)
MEANT = {
    "classification": "pt.Categorical()",
    "categorical": "pt.Categorical()",
    "multiclass": "pt.Categorical()",
    "regression": "pt.GaussianNoise()",
    "gaussian": "pt.GaussianNoise()",
    "binary": "pt.Bernoulli()",
    "bernoulli": "pt.Bernoulli()",
}


def check_likelihood(given: object) -> None:
    """Refuse a string or a class where a likelihood is meant; None is the default and fine.

    Raises:
        WrongChoice: with what to write instead.
    """
    if given is None:
        return
    if isinstance(given, str):
        meant = MEANT.get(given.lower())
        raise WrongChoice(
            f'likelihood is the text "{given}": write '
            + (f"likelihood={meant}." if meant else f"one of {LIKELIHOODS}.")
        )
    _no_class("likelihood", given)
    if not hasattr(given, "nll"):
        raise WrongChoice(f"likelihood is a {type(given).__name__}: give {LIKELIHOODS}.")


def check_estimator(given: object) -> None:
    """Refuse a string or a class where an estimator of curvature is meant; None is the default and fine.

    Raises:
        WrongChoice: with what to write instead.
    """
    if given is None:
        return
    if isinstance(given, str):
        raise WrongChoice(f'estimator is the text "{given}": write estimator=pt.{given.upper()}(), a value.')
    _no_class("estimator", given)


def _no_class(name: str, given: object) -> None:
    if isinstance(given, type):
        raise WrongChoice(
            f"{name} is the class {given.__name__}: write {name}=pt.{given.__name__}(), with brackets, a value of it."
        )
