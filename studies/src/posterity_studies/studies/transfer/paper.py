"""The paper's figures."""

from __future__ import annotations

PAPER = {
    "learned": {1: 10.2, 10: 46.1, 100: 86.8},
    "mean": {1: 9.9, 10: 9.8, 100: 10.6},
    "zero": {1: 10.0, 10: 9.7, 100: 12.0},
}
"""Accuracy in % of the paper's Fig. 2b (γ = 1e-5, τ = 1e-5, sampled) at 1, 10 and 100 images per class."""
