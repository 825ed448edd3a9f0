"""A layer's weight and bias seen as one matrix: finding, reading, writing and watching a network's blocks."""

from posterity.blocks.base import Layer, Moment
from posterity.blocks.capture import Call, Recorder
from posterity.blocks.network import (
    Block,
    Selection,
    find_blocks,
    has_matrix_form,
    named,
    read_blocks,
    run_with,
    watched,
    write_blocks,
)

__all__ = [
    "Block",
    "Call",
    "Layer",
    "Moment",
    "Recorder",
    "Selection",
    "find_blocks",
    "has_matrix_form",
    "named",
    "read_blocks",
    "run_with",
    "watched",
    "write_blocks",
]
