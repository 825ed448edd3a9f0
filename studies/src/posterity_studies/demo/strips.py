"""One wearer's recordings as small strips: movement, what it is called before and after, and doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any

from posterity_studies.shared.watch import EXERCISES

TOP, FOOT = 2.5, 28.0
"""Acceleration at the top of a strip, in g, and its height in units of the drawing."""


def strips(rows: Sequence[Mapping[str, Any]]) -> str:
    """All recordings, a key of colours above."""
    known = [row["exercise"] for row in rows if row["known"]]
    chips = "".join(f"<li><i class=chip style='background:{_colour(name)}'></i>{escape(name)}</li>" for name in known)
    return f"<ul class=key>{chips}</ul><div class=strips>{''.join(map(_strip, rows))}</div>"


def _strip(row: Mapping[str, Any]) -> str:
    name, count = row["exercise"], len(row["named_after"])
    right = sum(said == name for said in row["named_after"])
    doubt = fmean(row["doubt_after"])
    words = f"{right} of {count} right" if row["known"] else "never taught"
    label = escape(name)
    return (
        f"<div class='strip{'' if row['known'] else ' unknown'}'>"
        f"<h3><i class=chip style='background:{_colour(name)}'></i> {label} "
        f"<span class=dim>· {words}, mean doubt {doubt:.2f}</span></h3><div class=bands>"
        f"<span>movement</span>{_line(row['acceleration'], label)}"
        f"<span>before</span>{_band(row['named_before'], f'{label}: named before adapting')}"
        f"<span>after</span>{_band(row['named_after'], f'{label}: named after adapting')}"
        f"<span>doubt</span>{_bars(row['doubt_after'], f'{label}: doubt')}"
        "</div></div>"
    )


def _svg(width: float, height: float, label: str, inside: str, kind: str = "") -> str:
    return (
        f"<svg class='{kind}' viewBox='0 0 {width:g} {height:g}' preserveAspectRatio=none role=img aria-label='{label}'>"
        f"{inside}</svg>"
    )


def _line(values: Sequence[float], label: str) -> str:
    points = " ".join(f"{k},{FOOT * (1 - min(v, TOP) / TOP):.1f}" for k, v in enumerate(values))
    inside = (
        f"<polyline points='{points}' fill=none stroke=var(--dim) stroke-width=1.2 vector-effect=non-scaling-stroke />"
    )
    return _svg(len(values) - 1, FOOT, f"{label}: acceleration", inside, "tall")


def _band(names: Sequence[str], label: str) -> str:
    cells = "".join(
        f"<rect x='{k}' width='1.04' height='1' fill='{_colour(name)}'><title>{escape(name)}</title></rect>"
        for k, name in enumerate(names)
    )
    return _svg(len(names), 1, label, cells)


def _bars(values: Sequence[float], label: str) -> str:
    """The higher, the deeper their colour; nothing below the middle is coloured at all."""
    bars = "".join(
        f"<rect x='{k}' y='{1 - v:.2f}' width='1.04' height='{v:.2f}' fill=var(--pale) />"
        f"<rect x='{k}' y='{1 - v:.2f}' width='1.04' height='{v:.2f}' fill=var(--glow) opacity='{max(0.0, 2 * v - 1) ** 2:.2f}'/>"
        for k, v in enumerate(values)
    )
    return _svg(len(values), 1, label, bars, "tall")


def _colour(name: str) -> str:
    return f"var(--e{EXERCISES.index(name)})"
