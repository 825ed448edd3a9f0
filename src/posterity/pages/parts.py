"""What pages are made of: a document, drawings, numbers, tables and facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from posterity.pages.style import STYLE


def document(title: str, parts: Iterable[str], style: str = "") -> str:
    """A whole HTML page that needs nothing but itself.

    Args:
        title: of the window.
        parts: HTML, one piece after the other.
        style: CSS that this page adds to the common part.
    Returns:
        The page's text.
    """
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def numbers(figures: Iterable[tuple[str, str]]) -> str:
    """Large figures, each with a sentence below it."""
    return f"<div class=numbers>{''.join(f'<div><b>{escape(n)}</b>{escape(text)}</div>' for n, text in figures)}</div>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table: the first column is words, the others are numbers."""
    head = "".join(f"<th scope=col>{escape(c)}</th>" for c in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(v)}</td>' for v in row)}</tr>" for row in rows)
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table class=rows>{above}<tr>{head}</tr>{body}</table>"


def facts(pairs: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Names and values, one pair a line."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return f"<dl>{''.join(f'<dt>{escape(n)}</dt><dd>{escape(v)}</dd>' for n, v in items)}</dl>"


def panels(drawings: Iterable[str], kind: str = "") -> str:
    """Drawings side by side on a desk, one below the other on a phone."""
    return f"<div class='panels {kind}'>{''.join(f'<figure>{d}</figure>' for d in drawings)}</div>"
