"""Regression on UCI sets with their standard splits: what weight uncertainty adds to a small network."""
