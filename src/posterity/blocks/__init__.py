"""A layer's weight and bias seen as one matrix: finding, reading, writing and watching a network's blocks."""

from posterity.blocks.base import Block, Call, Layer, Moment, Recorder
from posterity.blocks.embedding import EmbeddingLayer
from posterity.blocks.linear import LinearLayer, TransposedLinearLayer
from posterity.blocks.network import (
    Selection,
    evaluating,
    find_blocks,
    frozen_outside,
    has_matrix_form,
    named,
    read_blocks,
    register_layer,
    run_with,
    watched,
    write_blocks,
)
from posterity.blocks.replicas import Replica, Replicas

__all__ = [
    "Block",
    "Call",
    "EmbeddingLayer",
    "Layer",
    "LinearLayer",
    "Moment",
    "Recorder",
    "Replica",
    "Replicas",
    "Selection",
    "TransposedLinearLayer",
    "evaluating",
    "find_blocks",
    "frozen_outside",
    "has_matrix_form",
    "named",
    "read_blocks",
    "register_layer",
    "run_with",
    "watched",
    "write_blocks",
]
