"""What a Gaussian carries beside its numbers: where it comes from, and known inputs that new ones are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from torch import Tensor

from posterity.brief import brief
from posterity.data.provenance import Provenance
from posterity.gaussian.plain import NOT_STORED, Natural, between


@dataclass(frozen=True)
class Card:
    """The story of a Gaussian. Everything is optional; what is not known is not claimed."""

    __repr__ = brief

    text: str = ""
    licence: str = ""
    architecture: str = ""
    """A fingerprint of the network's block names and shapes."""
    likelihood: str = ""
    classes: tuple[str, ...] = ()
    """The names of the classes that the head tells apart: a head is handed down only to a task with the same."""
    recipe: str = ""
    """How data has to be read for it, as JSON: what the command line standardises by. Data for it is read by that again."""
    estimator: str = ""
    count: Natural = 0
    """How many examples were learned from, over the whole chain of tasks."""
    precision: float | None = None
    """γ of the isotropic prior the chain began with."""
    scales: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """(α, β, τ) per block of the last update."""
    compression: Mapping[str, float] = field(default_factory=dict)
    """Relative error per block where an exact sum was joined to one Kronecker pair."""
    seed: Annotated[int, between(-(2**63), 2**64 - 1)] | None = None
    """torch takes seeds from the whole range of signed and unsigned 64-bit numbers."""
    frozen: str = ""
    """A fingerprint of all that the network computes with beside the blocks: frozen weights, norm statistics."""
    provenance: Provenance = field(
        default_factory=lambda: Provenance.unknown("it was made by hand"), metadata=NOT_STORED
    )
    """What it has seen, and what was chosen: certificates refuse data that is in here."""
    versions: Mapping[str, str] = field(default_factory=dict)
    speaks_of: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False, metadata=NOT_STORED)
    """A digest of each block's mean that the provenance was written for. It does not go into files: reading one writes it."""

    @property
    def source(self) -> str:
        """A fingerprint of all data that was seen, empty if there was none."""
        return self.provenance.fingerprint


@dataclass(frozen=True, eq=False)
class KnownFeatures:
    """Features of known inputs, and quantiles of how left-out ones look beside them: tensors and plain values.

    `posterity.novelty` makes it, and reads it.
    """

    __repr__ = brief

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.words)
