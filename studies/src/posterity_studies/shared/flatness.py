"""Whether a training has arrived: what its objective still gained at the end."""

from __future__ import annotations

from posterity.laplace import History


def flatness(history: History, count: int) -> dict[str, float]:
    """The objective in summed nats in the first epoch, at half and at its least, and what the last quarter still gained."""
    line = [epoch.objective * count for epoch in history.epochs]
    quarter = min(line[: -max(1, len(line) // 4)])
    found = {"first": line[0], "half": line[len(line) // 2], "last": min(line), "gained": quarter - min(line)}
    return {name: float(f"{value:.4g}") for name, value in found.items()}
