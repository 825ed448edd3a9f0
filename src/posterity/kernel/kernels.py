"""The prior as a kernel over outputs: K(x, x') = J(x) P⁻¹ J(x')ᵀ, for every strength of the prior.

`OutputKernel` is that matrix exactly, for a network whose head is handed down. A *new* head has no weights yet through which
outputs could depend on the layers below it. Its prior is isotropic, so every class has the same kernel and none is tied to
another: features · features / head, plus what the layers below add, averaged over directions of the features that the source
task found worth reading (its head's rows). That is `SharedKernel`: no label has been looked at, so leaving an example out is
honest.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from posterity.errors import UnsupportedLayer
from posterity.kernel.gradients import Rows
from posterity.kernel.jacobian import BlockFrame, Jacobian
from posterity.kernel.latent import Latent
from posterity.kernel.mode import Observations, coupled_mode, shared_mode

Kept = dict[object, Tensor]
"""Kernels for a unit floor, by the ratio of share and floor: strengths of one ratio differ by a factor alone."""
SIDE = 3000
"""The largest n·C whose kernel over all outputs is factorised (72 MB, a second a Cholesky factor)."""
SHARED = 1500
"""The largest n for a kernel that all outputs share."""
SHARES = (0.0, 0.001, 0.01, 0.1, 1.0)
FLOORS = (0.01, 0.1, 1.0, 10.0, 100.0)
HEADS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)


@dataclass(frozen=True)
class Strength:
    """share · (what the source learned) + floor, and the floor of a head that is new.

    A share of 0 is the isotropic prior around the same mean; an infinite floor leaves all but a new head at the prior's mean.
    """

    share: float = 1.0
    floor: float = 1.0
    head: float = 1.0


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """J P⁻¹ Jᵀ with P = share · source + floor in the frame of each block."""

    frames: Mapping[str, BlockFrame]
    kept: Kept = field(default_factory=dict, repr=False, kw_only=True)
    """Of training examples with each other."""

    @property
    def learned(self) -> bool:
        """Whether the source says anything: otherwise a share has no meaning."""
        return any(frame.source is not None for frame in self.frames.values())

    def own(self, of: Jacobian, strength: Strength | None) -> Tensor:
        """The kernel of training examples with each other."""
        return self.between(of, of, strength, self.kept)

    @abstractmethod
    def between(self, first: Jacobian, second: Jacobian, strength: Strength | None, kept: Kept | None = None) -> Tensor:
        """The kernel of training examples with new inputs; `kept` is for what other strengths have in common with it."""

    @abstractmethod
    def within(self, of: Jacobian, strength: Strength | None, kept: Kept | None = None) -> Tensor:
        """The kernel of each new input with itself."""

    @abstractmethod
    def mode(self, gram: Tensor, of: Observations) -> Latent:
        """The posterior over the training examples' outputs, around its mode."""

    @abstractmethod
    def part(self, gram: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """The kernel of some training examples with others, out of `own`."""

    @abstractmethod
    def diagonal(self, gram: Tensor, of: Tensor) -> Tensor:
        """The kernel of some training examples with themselves, out of `own`."""

    def _numbers(self, name: str, strength: Strength | None) -> tuple[float, float]:
        frame = self.frames[name]
        share, floor = (frame.share, frame.floor) if strength is None else (strength.share, strength.floor)
        return (share if frame.source is not None else 0.0), floor

    def _sum(
        self,
        names: list[str],
        strength: Strength | None,
        gram: Callable[[str, Tensor | None], Tensor],
        what: object,
        kept: Kept | None,
    ) -> Tensor | None:
        """Σ over blocks, those with one pair of numbers together. `what` tells kernels apart that are kept in one place."""
        groups: dict[tuple[float, float], list[str]] = {}
        for name in names:
            groups.setdefault(self._numbers(name, strength), []).append(name)
        total: Tensor | None = None
        for (share, floor), members in groups.items():
            if math.isinf(floor):
                continue
            # Rounded: 0.001 / 0.01 and 0.01 / 0.1 are one kernel.
            ratio = float(f"{share / floor:.9g}") if floor else None
            key = (what, "floorless", share, *members) if ratio is None else (what, ratio, *members)
            part = None if kept is None else kept.get(key)
            if part is None:
                pieces = [gram(name, self._weights(name, share, ratio)) for name in members]
                part = sum(pieces[1:], pieces[0]).double()
                if kept is not None:
                    kept[key] = part
            part = part / floor if floor else part
            total = part if total is None else total + part
        return total

    def _weights(self, name: str, share: float, ratio: float | None) -> Float[Tensor, "out inp"] | None:
        """One over the precision, up to the floor: None where all are 1."""
        source = self.frames[name].source
        if ratio == 0 or source is None:
            return None
        return 1 / (share * source) if ratio is None else 1 / (ratio * source + 1)


@dataclass(frozen=True, eq=False)
class OutputKernel(Kernel):
    """The kernel of a network linearised at one point: every output has gradients of its own."""

    def between(
        self, first: Jacobian, second: Jacobian, strength: Strength | None, kept: Kept | None = None
    ) -> Float[Tensor, "n outputs m others"]:
        return self._all(strength, lambda name, w: first.blocks[name].gram(second.blocks[name], w), first, kept)  # type: ignore[arg-type]

    def within(
        self, of: Jacobian, strength: Strength | None, kept: Kept | None = None
    ) -> Float[Tensor, "m outputs outputs"]:
        return self._all(strength, lambda name, w: of.blocks[name].norms(w), "within", kept)

    def mode(self, gram: Tensor, of: Observations) -> Latent:
        side = of.start.numel()
        return coupled_mode(gram.reshape(side, side), of)

    def part(self, gram: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return gram[rows][:, :, columns]

    def diagonal(self, gram: Tensor, of: Tensor) -> Tensor:
        return gram[of, :, of]

    def _all(
        self,
        strength: Strength | None,
        gram: Callable[[str, Tensor | None], Tensor],
        what: object,
        kept: Kept | None,
    ) -> Tensor:
        total = self._sum(list(self.frames), strength, gram, what, kept)
        assert total is not None
        return total


@dataclass(frozen=True, eq=False)
class SharedKernel(Kernel):
    """The kernel of a new head: the same for every output."""

    head: str

    def between(
        self, first: Jacobian, second: Jacobian, strength: Strength | None, kept: Kept | None = None
    ) -> Float[Tensor, "n m"]:
        body = self._sum(
            self._body,
            strength,
            lambda name, w: first.blocks[name].shared_gram(second.blocks[name], w),  # type: ignore[arg-type]
            first,
            kept,
        )
        return self._plus(self._features(first) @ self._features(second).mT, body, strength)

    def within(self, of: Jacobian, strength: Strength | None, kept: Kept | None = None) -> Float[Tensor, " m"]:
        body = self._sum(self._body, strength, lambda name, w: of.blocks[name].shared_norms(w), "within", kept)
        return self._plus(self._features(of).square().sum(-1), body, strength)

    def mode(self, gram: Tensor, of: Observations) -> Latent:
        return shared_mode(gram, of)

    def part(self, gram: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return gram[rows][:, columns]

    def diagonal(self, gram: Tensor, of: Tensor) -> Tensor:
        return gram[of, of]

    @property
    def _body(self) -> list[str]:
        return [name for name in self.frames if name != self.head]

    def _features(self, of: Jacobian) -> Float[Tensor, "n features"]:
        head = of.blocks[self.head]
        if not isinstance(head, Rows):
            raise UnsupportedLayer(
                f'the new head "{self.head}" is applied at several positions of an example: only a head on one vector of '
                'features an example has a kernel. Use pt.learn(..., scales="catoni"), which keeps a Gaussian over weights.'
            )
        return head.a.double()

    def _plus(self, head: Tensor, body: Tensor | None, strength: Strength | None) -> Tensor:
        own = head / (self.frames[self.head].floor if strength is None else strength.head)
        return own if body is None else own + body
