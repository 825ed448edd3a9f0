"""A figure as SVG inside a page, in the page's colours, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from posterity.plot.canvas import COLOURS, GRID, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEMED = {INK: "ink", GRID: "grid", **{colour: name for name, colour in COLOURS.items()}}
"""What `posterity.plot` draws with, and the page's variables that follow the reader's light or dark mode."""


def svg(figure: Figure, name: str, label: str | None = None, colours: Mapping[str, str] = THEMED) -> str:
    """A figure as inline SVG. The same figure gives the same text.

    Args:
        figure: of matplotlib.
        name: tells this drawing apart from others of the page: no two may have the same.
        label: its description for readers who do not see it; the name by default.
        colours: colours of the figure, and the page's variables that stand for them.
    Returns:
        An `<svg>` element as wide as its place on the page.
    """
    import matplotlib

    key = re.sub(r"\W+", "-", name)
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Inline, all drawings of a page share one name space: each gets its own.
    text = re.sub(r'id="([\w.-]+)"', rf'id="{key}-\1"', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{key}-", text)
    text = re.sub(r"(font: [^;\"]*?)'[^\"]*?sans-serif", r"\1system-ui, sans-serif", text)
    for colour, variable in colours.items():
        text = text.replace(colour, f"var(--{variable})")
    # The page decides the size; the view box keeps the shape.
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(label or name, quote=True)}">{rest}'
