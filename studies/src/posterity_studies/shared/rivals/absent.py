"""A rival's library that may not be here."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class RivalMissing(Exception):
    """A rival cannot take part, and why."""


def library(module: str, package: str) -> Any:
    """The module, or why it is not here."""
    try:
        found = import_module(module)
    except ImportError as error:
        raise RivalMissing(f"{package} is not installed ({error.name})") from None
    if getattr(found, "__file__", None) is None:
        # Any folder of that name on the path passes for a module without a file.
        raise RivalMissing(f"{package} is not installed ({module} is a folder)")
    return found
