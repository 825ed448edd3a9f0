"""What each way of joining loses: tables and figure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.studies.one_frame.reading import WAYS, blocks, mean, shares, updates

NAMES = {"0": "conv 6×26", "3": "conv 16×151", "7": "linear 120×401", "9": "linear 84×121", "11": "linear 10×85"}


def tables(records: Sequence[Record]) -> list[Table]:
    losses, figures = [], []
    for share in shares(records):
        for block in blocks(records):
            for k in updates(records):
                lost = [mean(records, share, block, k, f"{way} kl") for way in WAYS]
                error = mean(records, share, block, k, "exact error") / 2
                turned = mean(records, share, block, k, "turned directions")
                shown = f"± {error:.1f}" if error else "exact"
                losses.append([f"{share:g}", NAMES[block], str(k), *map(_nats, lost), f"{turned:.0f}", shown])
            last = updates(records)[-1]
            exact = mean(records, share, block, last, "exact logdet")
            for way, name in WAYS.items():
                log_det, variance, ratio = (
                    mean(records, share, block, last, f"{way} {key}") for key in ("logdet", "variance", "ratio")
                )
                if math.isnan(log_det):
                    continue
                row = [f"{log_det - exact:+.4f}", f"{100 * variance:.1f} %", f"{ratio:.3f}"]
                figures.append([f"{share:g}", NAMES[block], name, *row])
    return [
        Table(
            "KL divergence to the exact Gaussian in nats, by update",
            ["share", "block", "update", *WAYS.values(), "directions turned", "error of the exact log det (KL)"],
            losses,
        ),
        Table(
            "After the last update: log det per weight less the exact one, mean relative error of an output's variance, "
            "least ratio of any direction's precision to the one before",
            ["share", "block", "way", "log det", "variance", "least ratio"],
            figures,
        ),
    ]


def _nats(x: float) -> str:
    return "–" if math.isnan(x) else f"{x:,.1f}"


def draw(records: Sequence[Record]) -> Figure:
    """KL by update, a panel for each block, on a logarithmic scale."""
    names = blocks(records)
    figure = Figure(figsize=(2.3 * len(names), 2.8), layout="constrained")
    for axis, block in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
        share = shares(records)[0]
        for way, name in WAYS.items():
            found = [mean(records, share, block, k, f"{way} kl") for k in updates(records)]
            axis.semilogy(updates(records), [max(x, 1e-3) for x in found], "o-", label=name)
        axis.axhline(5, color="0.6", lw=0.8, ls="--")
        axis.set_title(NAMES[block], fontsize=9)
        axis.set_xlabel("update")
        axis.set_xticks(updates(records))
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel(f"KL in nats, share {shares(records)[0]:g}")
    figure.axes[0].legend(frameon=False, fontsize=7)
    return figure
