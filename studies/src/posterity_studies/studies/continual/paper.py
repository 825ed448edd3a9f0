"""What others report."""

from __future__ import annotations

PUBLISHED = {"S-FSVI": 99.5, "VCL": 98.4}
"""Multi-head split MNIST, average accuracy in %, as their authors report it."""
