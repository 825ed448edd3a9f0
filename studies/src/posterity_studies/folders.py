"""Where things are kept: results that come with the package, results that a user makes, what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

SHIPPED = Path(__file__).parent / "results"
"""The committed results, part of the package: `show` and `report` read them."""

RUNS = Path("runs")
"""Where `posterity study run` and `posterity demo` write by default: a folder in the current one."""


def cache() -> Path:
    """For what can be made again: `POSTERITY_CACHE`, or `posterity` in the user's cache folder."""
    named = os.environ.get("POSTERITY_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posterity"
