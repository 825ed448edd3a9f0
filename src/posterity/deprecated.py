"""What earlier versions wrote otherwise: names that moved and arguments in another order work for one more version, and warn."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MOVED = {
    "curvature": ("Automatic", "Curvature", "Dense", "Empirical", "Exact", "Framed", "InFrame", "Sampled"),
    "gaussian": ("Card",),
    "kernel": ("Laplace", "Variational"),
    "laplace": ("History", "PriorPenalty", "log_evidence", "tune_strength"),
    "metrics": ("Scores", "consistency", "ood_auroc", "reliability", "score", "selective_accuracy"),
    "pacbayes": (
        "Tuned",
        "gibbs_risk",
        "optimise_posterior",
        "recursive_certificate",
        "sample_then_evaluate",
        "tune",
    ),
    "progressive": ("Stream",),
    "wrappers": ("from_laplace", "to_laplace"),
}
"""Names that were `pt.name` up to 0.1, by the part that has them now."""

RENAMED = {
    "curvature": {
        "Automatic": "AutomaticLabels",
        "Empirical": "EmpiricalLabels",
        "Exact": "ExactLabels",
        "Framed": "OwnFrame",
        "InFrame": "GivenFrame",
        "Sampled": "SampledLabels",
    },
    "errors": {"Inconsistent": "InconsistentPosterior", "Memorised": "Memorisation", "Unfrozen": "UnfrozenState"},
    "kernel": {"Variational": "VariationalGaussian"},
    "pacbayes": {"Tuned": "TunedScales"},
}
"""Names up to 0.1 of what has another name now, by part."""

GONE = {
    "": {"PNN": "continual"},
    "algebra": dict.fromkeys(("power_method", "power_history", "factorwise_sum"), "power_method"),
    "pacbayes": {
        "Catoni": "projection",
        "McAllester": "projection",
        "PerLayer": "per_layer",
        "grid_search": "grid_search",
        "optimise_strengths": "strengths",
        "per_layer": "per_layer",
    },
}
"""Names that only studies use, by the part that had them: the file of `posterity_studies.shared` that has them now."""


def gone(part: str, name: str) -> Exception:
    """The error for a name that a part does not have, with its new place if it had it up to 0.1."""
    where = f"posterity.{part}" if part else "posterity"
    file = GONE.get(part, {}).get(name)
    if file is None:
        return AttributeError(f"module {where!r} has no attribute {name!r}")
    # No AttributeError: `from posterity.pacbayes import name` would swallow what it says.
    return ImportError(
        f"{where}.{name} is used by studies alone, and is posterity_studies.shared.{file}.{name} now: pip install ./studies."
    )


def moved(name: str) -> Any:
    """What `pt.name` was, with a warning that says where it is now.

    Raises:
        AttributeError: if there was no such name.
    """
    for part, names in MOVED.items():
        if name in names:
            now = RENAMED.get(part, {}).get(name, name)
            _warn(f"pt.{name} is pt.{part}.{now} now, and goes from here in the next minor version", 3)
            return getattr(import_module(f"posterity.{part}"), now)
    raise gone("", name)


def renamed(part: str, name: str) -> Any:
    """What a part called `name`, with a warning that says its new name.

    Raises:
        AttributeError: if there was no such name.
    """
    now = RENAMED[part].get(name)
    if now is None:
        raise gone(part, name)
    _warn(f"posterity.{part}.{name} is called {now} now; the older name goes in the next minor version", 3)
    return getattr(import_module(f"posterity.{part}"), now)


def was(*order: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a verb take its arguments in an older order too. A Gaussian in the place that `prior` had is what tells them apart.

    Args:
        order: the names of the first arguments, as they were ordered.
    """
    place = order.index("prior")

    def decorate(verb: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(verb)
        now = list(signature.parameters)
        every = [*order, *(name for name in now if name not in order)]

        @functools.wraps(verb)
        def called(*args: Any, **named: Any) -> R:
            # By name: this file stands below all parts, so that each can use it.
            if len(args) > place and type(args[place]).__name__ == "Gaussian":
                said = ", ".join(now[: len(order)])
                _warn(
                    f"{getattr(verb, '__name__', verb)} takes ({said}, …) now; the older order goes in the next minor version",
                    3,
                )
                return verb(**dict(zip(every, args, strict=False)), **named)  # type: ignore[call-arg]
            return verb(*args, **named)

        return called

    return decorate


def _warn(said: str, level: int) -> None:
    warnings.warn(said, DeprecationWarning, stacklevel=level)
