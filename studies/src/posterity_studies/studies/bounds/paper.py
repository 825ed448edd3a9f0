"""The paper's ladder (its Fig. 2a)."""

from __future__ import annotations

RUNGS: dict[str, tuple[str, float | None]] = {
    "baseline": ("baseline: zero-mean isotropic", 0.999),
    "grid search": ("+ grid search", 0.990),
    "learned prior": ("+ learned prior", 0.978),
    "curvature scaling": ("+ curvature scaling", 0.925),
    "one number": ("the same by one number", None),
    "projection": ("+ frequentist projection", 0.885),
    "declared grid": ("ours: prior of a declared grid", None),
    "optimised": ("ours: + optimised posterior", None),
}
"""Each rung's name, and the Catoni bound that the paper reports for it."""

PAPER_GAMMA = 1e-3
