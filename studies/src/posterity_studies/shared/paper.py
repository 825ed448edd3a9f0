"""Settings of the paper that several studies keep."""

from __future__ import annotations

DELTA = 0.1
"""The paper's ε, the probability with which a bound may fail. Certificates are at 95 % all the same."""
