"""Columns whose width is chosen by leave-one-out beside columns whose width is chosen by validation data."""
