"""Where a bound is lost: a certificate taken apart into what each thing costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from posterity.pacbayes import Certificate
from posterity.pacbayes.bounds import klinv
from posterity.plot.canvas import COLOURS, INK, canvas, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def losses(certificate: Certificate) -> dict[str, float]:
    """What the bound is made of: steps that sum to it, from the error itself to the divergence from the prior.

    The order matters a little: each step is what it adds to those before it.
    """
    alone = replace(certificate, kl=0.0, payments=())
    chosen = replace(certificate, kl=0.0)
    steps = {"error of the predictor": certificate.gibbs}
    reached = certificate.gibbs
    if certificate.rule == "klinv":
        upper = klinv(certificate.gibbs, math.log(1 / certificate.delta_draws) / certificate.replicates)
        steps["finitely many draws"] = upper - reached
        reached = upper
    steps["finitely many examples"] = alone.recomputed() - reached
    steps["choices made by looking"] = chosen.recomputed() - alone.recomputed()
    # The rest is KL; copies among the examples are in the bound and in no other number.
    steps["KL to the prior"] = certificate.bound - chosen.recomputed()
    return {name: value for name, value in steps.items() if abs(value) > 1e-6 or name.startswith("error")}


def waterfall(certificate: Certificate, ax: Axes | None = None) -> Axes:
    """A certificate as a waterfall: from the error to the bound, and what each step costs.

    Args:
        certificate: of any rule.
        ax: axes to draw on; new ones by default.
    Returns:
        The axes. The dashed line is the hold-out bound of the network at the prior's mean, from the same examples.

    Example:
        >>> pt.plot.waterfall(fit.certify((x, y)))
    """
    ax = canvas(ax, 4.6, 3.0)
    steps = losses(certificate)
    names = [*steps, "the bound"]
    reached = 0.0
    colours = list(COLOURS.values())
    for row, value in enumerate(steps.values()):
        ax.barh(row, value, left=reached, color=colours[row % len(colours)], height=0.6)
        ax.text(max(reached + value, reached) + 0.01, row, f"{value:.3f}", va="center", fontsize=9, color=INK)
        reached += value
    ax.barh(len(steps), certificate.bound, color=colours[-1], height=0.6)
    ax.text(certificate.bound + 0.01, len(steps), f"{certificate.bound:.3f}", va="center", fontsize=9, color=INK)
    ax.axvline(certificate.holdout.bound, color=INK, lw=1, ls=(0, (3, 2)), zorder=0.5)
    for text in ax.texts:  # figures stay readable where the line runs through them
        text.set_bbox({"facecolor": "#fcfcfa", "edgecolor": "none", "pad": 0.6})
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.set_xlim(0, min(1.2, 1.25 * max(certificate.bound, certificate.holdout.bound, 0.05)))
    return titled(ax, f"where the bound is lost (n = {certificate.n:,})", f"risk at {100 * certificate.confidence:g} %")
