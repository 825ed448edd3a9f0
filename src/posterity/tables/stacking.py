"""Weights of normal numbers whose average is normal too: with the mixture's mean and variance."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from posterity.kernel.stacking import stacked
from posterity.tables.minimise import minimised
from posterity.tables.model import log_density

STEPS = 100


def stacked_numbers(
    y: Float[Tensor, " n"], means: Float[Tensor, "k n"], variances: Float[Tensor, "k n"], counts: Float[Tensor, " k"]
) -> Float[Tensor, " k"]:
    """Weights that maximise Σ_i ln N(y_i; m_i, v_i) + Σ_k count_k ln w_k, m = Σ w μ and v = Σ w (σ² + μ²) − m².

    A little weight of a candidate that is far off widens all predictions, which an average of densities would not see. Begins
    at the weights of that average, which is concave.
    """
    start = stacked(log_density(y, means, variances), counts)
    if not len(y):
        return start

    def loss(logs: Tensor) -> tuple[float, Tensor]:
        w = logs.softmax(0)
        m = w @ means
        v = w @ variances + w @ (means - m).square()
        value = -float(log_density(y, m, v).sum()) - float(counts @ logs.log_softmax(0))
        by_variance = 0.5 * (1 / v - ((y - m) / v).square())
        by_weight = (means * ((m - y) / v) + (variances + means.square() - 2 * m * means) * by_variance).sum(1)
        return value, w * (by_weight - w @ by_weight) - counts + counts.sum() * w

    return minimised(loss, start.clamp_min(1e-4).log(), STEPS, 1e-4).softmax(0)
