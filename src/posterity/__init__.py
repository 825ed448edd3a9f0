"""Posterity: a posterior becomes a prior.

Structured Gaussians over network weights, learned on one task and handed down to the next.
"""

__version__ = "0.1.0.dev0"
