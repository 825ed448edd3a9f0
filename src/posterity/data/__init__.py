"""Examples read once: batches, hashes of examples, what has been seen, and what is left out together."""

from posterity.data.batches import Batch, Data, batches

__all__ = ["Batch", "Data", "batches"]
