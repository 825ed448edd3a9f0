"""The type the package turns around: a prior and a posterior are both this."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.algebra import JointEigen, KroneckerSum, Matrix, as_floored, is_large, nearest, relative_error
from posterity.blocks import find_blocks, named, write_blocks
from posterity.blocks.base import version_of
from posterity.brief import brief_blocks
from posterity.data.hashes import fingerprint
from posterity.data.provenance import Provenance, digest
from posterity.errors import BlockMismatch
from posterity.gaussian.card import Card, KnownFeatures
from posterity.gaussian.container import write_file
from posterity.gaussian.frozen import FrozenState, frozen_fingerprint
from posterity.gaussian.spread import Spread


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Independent normals over a network's blocks: a mean matrix and a structured precision each.

    No network inside: it saves without code, compares across models and moves between devices. All values are frozen;
    whatever changes one returns another.
    """

    mean: Mapping[str, Tensor]
    precision: Mapping[str, Matrix]
    card: Card = field(default_factory=Card)
    frozen: FrozenState = field(default_factory=FrozenState)
    """What the network computes with beside the blocks (norm statistics, frozen weights), up to 64 MiB; empty if unknown."""
    known: KnownFeatures = field(default_factory=KnownFeatures)
    """Features of at most 512 known inputs and quantiles of scores, by which unknown inputs are found: at most about 1 MB."""

    def __post_init__(self) -> None:
        if self.mean.keys() != self.precision.keys():
            odd = sorted(self.mean.keys() ^ self.precision.keys())
            raise BlockMismatch(f"blocks {odd} have a mean or a precision, and not both.")
        if not self.mean:
            raise BlockMismatch("a Gaussian needs blocks: give it at least one.")
        for name, mean in self.mean.items():
            if self.precision[name].batch:
                raise BlockMismatch(
                    f'block "{name}" has a batch of {tuple(self.precision[name].batch)} precisions: one is needed.'
                )
            if tuple(mean.shape) != self.precision[name].shape:
                out, inp = self.precision[name].shape
                raise BlockMismatch(
                    f'block "{name}" has a mean of {"×".join(map(str, mean.shape))} and a precision over {out}×{inp}: '
                    "they must describe one matrix."
                )

    @property
    def provenance(self) -> Provenance:
        """What it has seen: the same as its card's, if the card was written for this mean. Else it is unknown."""
        written = self.card.provenance
        if written.gaps or self._card_is_of_this_mean():
            return written
        return written.joined(Provenance.unknown("its mean is not the one that its card was written for"))

    def with_provenance(self, provenance: Provenance) -> Gaussian:
        """The same with another record of what it has seen, written for its present mean.

        One that is put together by hand from a mean and another Gaussian's card has an unknown past, until this says otherwise.
        """
        return replace(self, card=replace(self.card, provenance=provenance, speaks_of=_digests(self.mean)))

    def _card_is_of_this_mean(self) -> bool:
        """Whether every block's mean is as it was when the card was written. Looked at again when a tensor has changed."""
        now = {name: (id(mean), version_of(mean)) for name, mean in self.mean.items()}
        kept = self.__dict__.get("_looked")
        if kept is None or kept[0] != now:
            kept = now, _digests(self.mean).items() <= dict(self.card.speaks_of).items()
            self.__dict__["_looked"] = kept
        return bool(kept[1])

    def without_known(self) -> Gaussian:
        """This Gaussian without features of known inputs, for users who may not pass them on.

        `.unknown` of predictions by this Gaussian is then None, and `pt.adapt` compares new inputs with its own examples alone.
        """
        return replace(self, known=KnownFeatures())

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the blocks, in the network's order."""
        return tuple(self.mean)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(matrix.size for matrix in self.precision.values())

    @property
    def nbytes(self) -> int:
        """Bytes of its means and precisions, as a file would hold them."""
        tensors = [*self.mean.values()]
        for matrix in self.precision.values():
            tensors += matrix.tensors()[1].values()
        return sum(tensor.nbytes for tensor in tensors)

    def sample(
        self, n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> dict[str, Float[Tensor, "n out inp"]]:
        """n independent draws of all blocks.

        They are computed in float64 (in the mean's precision where a block is large) and given in the mean's precision. With
        another `dtype` both are in that: a network in float32 cannot tell the difference, and gets its draws several times
        sooner.
        """
        drawn = {}
        for name, mean in self.mean.items():
            inside = dtype or (mean.dtype if is_large(*mean.shape) else torch.float64)
            drawn[name] = self.spread(name, inside).draw(n, generator).to(dtype or mean.dtype)
        return drawn

    def spread(self, block: str, dtype: torch.dtype) -> Spread:
        """A block's distribution, factorised and ready to be drawn from many times, in the given precision."""
        # Half precision has no generator of its own worth the name on every device, and overflows on the way.
        wide = torch.float32 if dtype.itemsize < 4 else dtype
        return Spread.of(self.mean[block].to(wide), self.precision[block])

    def quadratic(self, point: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """(point − mean)ᵀ · precision · (point − mean), summed over blocks, in float64."""
        self.check_point(point)
        deviations = ((name, point[name].detach().double() - self.mean[name].double()) for name in self.blocks)
        return torch.stack([self.precision[name].quadratic(d).double() for name, d in deviations]).sum()

    def logdet(self) -> Float[Tensor, ""]:
        """log det of the precision."""
        return torch.stack([matrix.logdet().double() for matrix in self.precision.values()]).sum()

    def log_prob(self, point: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The log density at a point, in nats."""
        return 0.5 * (self.logdet() - self.size * math.log(2 * math.pi) - self.quadratic(point))

    def kl(self, other: Gaussian) -> Float[Tensor, ""]:
        """KL(self ‖ other) in nats: how far this posterior has moved from that prior."""
        return torch.stack(list(self.kl_by_block(other).values())).sum()

    def kl_by_block(self, other: Gaussian) -> dict[str, Float[Tensor, ""]]:
        """The same block by block, exact for every pair of structures.

        ½ [tr(P Q⁻¹) − n + log det Q − log det P + <D, P D>], Q this precision, P the other's, D the difference of means.
        """
        other.check_point(self.mean)
        self.check_point(other.mean)
        result = {}
        for name in self.blocks:
            q, p = self.precision[name], other.precision[name]
            if q is p and self.mean[name] is other.mean[name]:
                # Handed on untouched, such as the columns of earlier tasks: exactly zero, with nothing to factorise.
                result[name] = torch.zeros((), dtype=torch.float64, device=q.device)
                continue
            shift = self.mean[name].double() - other.mean[name].double()
            spread = q.trace_of(p).double() - q.size + q.logdet().double() - p.logdet().double()
            result[name] = 0.5 * (spread + p.quadratic(shift).double())
        return result

    def tempered(self, temperature: float) -> Gaussian:
        """The covariance times the temperature: below one is colder, and surer of itself."""
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"a temperature is positive and finite, not {temperature}")
        return replace(self, precision={name: matrix / temperature for name, matrix in self.precision.items()})

    def shrunk(self, weight: float) -> Gaussian:
        """Every Kronecker factor moved towards its mean: (1 − weight) · A + weight · (mean eigenvalue of A) · identity.

        Curvature says nothing of directions in which no example ever moved the output (weights into a unit that never fires),
        and there a draw is as wide as γ allows. Shrinkage lends them a share of what is known of the others, whatever γ is. Of a
        sum every term is shrunk, with its trace as it was; a matrix given by eigenvalues is shrunk in its own frame.
        """
        if not 0 <= weight < 1:
            raise ValueError(f"a weight to shrink by is at least 0 and below 1, not {weight}")
        grown = {name: matrix.jittered(weight / (1 - weight)) for name, matrix in self.precision.items()}
        # Both ways to write it differ by a number, the same for every term of a sum: the one that keeps the trace.
        kept = {name: float(self.precision[name].trace() / matrix.trace()) for name, matrix in grown.items()}
        return replace(self, precision={name: matrix * kept[name] for name, matrix in grown.items()})

    def adjusted(self, share: float | None = None, floor: float | None = None) -> Gaussian:
        """The same learned prior with another share of its source, or another floor: P = share · curvature + floor · identity.

        A share of 1 is Bayes' rule and 0 the isotropic prior around the same mean. Precisions of other forms are brought to this
        one, exactly but for sums of several Kronecker products.
        """
        families = {name: as_floored(matrix) for name, matrix in self.precision.items()}
        return replace(self, precision={name: family.adjusted(share, floor) for name, family in families.items()})

    def fingerprint(self) -> str:
        """32 hexadecimal digits that differ between Gaussians, by its numbers alone."""
        parts: list[str | Tensor] = []
        for name in self.blocks:
            kind, tensors = self.precision[name].tensors()
            for role, tensor in {"mean": self.mean[name], **tensors}.items():
                parts += [f"{name} {kind} {role} {tuple(tensor.shape)}", tensor]
        return fingerprint(parts)

    @torch.no_grad()
    def write_to(self, model: nn.Module, *, frozen: bool = True) -> None:
        """Set a network's weights to this mean, and restore its norm statistics and frozen weights, in place.

        Blocks of the network that this does not speak of stay as they are, and so do frozen weights that were too large to carry.

        Args:
            model: the network that this was made with, or another of the same architecture.
            frozen: False sets the weights alone.

        Raises:
            FrozenMismatch: if the network has no place for what is carried; then nothing is changed.

        Example:
            >>> pt.load("watch.safetensors").write_to(model)
        """
        parameters = dict(model.named_parameters(remove_duplicate=False))
        blocks = find_blocks(model, named(self.mean))
        weights = write_blocks(blocks, self.mean)
        if frozen:
            self.frozen.write_to(model, blocks)
        for name, value in weights.items():
            parameters[name].copy_(value.to(parameters[name]))

    def without(self, *blocks: str) -> Gaussian:
        """The Gaussian without these blocks."""
        self._knows(blocks)
        return self.restricted(name for name in self.blocks if name not in blocks)

    def restricted(self, blocks: Iterable[str]) -> Gaussian:
        """The Gaussian over these blocks alone, in this order."""
        names = tuple(blocks)
        self._knows(names)
        return replace(self, mean={n: self.mean[n] for n in names}, precision={n: self.precision[n] for n in names})

    def compress(self) -> Gaussian:
        """Each exact sum joined to the nearest single Kronecker pair; `card.compression` has each one's relative error.

        What a posterior goes through to become the prior of the next task, or a small file. Single pairs, diagonals and
        identities stay as they are.
        """
        precision, errors = dict(self.precision), dict(self.card.compression)
        for name, matrix in self.precision.items():
            if isinstance(matrix, (KroneckerSum, JointEigen)):
                pair = nearest(matrix)
                precision[name] = pair
                errors[name] = float(relative_error(matrix, pair))
        return replace(self, precision=precision, card=replace(self.card, compression=errors))

    @property
    def is_compressed(self) -> bool:
        """Whether no block's precision is a sum of several terms."""
        return not any(
            isinstance(m, JointEigen) or (isinstance(m, KroneckerSum) and len(m.terms) > 1)
            for m in self.precision.values()
        )

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Gaussian:
        """The same on another device, or in another precision."""
        mean = {name: mean.to(device=device, dtype=dtype) for name, mean in self.mean.items()}
        precision = {name: matrix.to(device, dtype) for name, matrix in self.precision.items()}
        return replace(self, mean=mean, precision=precision).with_provenance(self.provenance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one `.safetensors` file, which `posterity.load` opens: whatever happens, the old or the new one is there, whole.

        Tensors go to the disk one after the other, and of large symmetric factors half: a prior over ResNet-50 takes some tens
        of megabytes of memory beyond its own to be written.

        Raises:
            NotStorable: if this holds something that the format has no place for.
            MissingFolder: if its folder does not exist.
            DiskFull: if there is no room; nothing is left behind.
        """
        from posterity.gaussian.storage import disassemble  # which builds Gaussians, and so imports this module first

        write_file(path, *disassemble(self))

    def keep_frames(self, path: str | os.PathLike[str]) -> None:
        """Compute the eigenvectors of all large blocks, once: from then on, draws and solutions need products only.

        They are minutes of work for a network like ResNet-50, so they are kept in a file, best beside the prior's own: where
        it is there and fits, they are read from it, else they are computed and written.

        Args:
            path: the file, such as "imagenet.frames.safetensors". It is believed in nothing: what does not fit this Gaussian is
                computed again.
        Raises:
            TooLittleMemory: if the frames do not fit.
            DiskFull: if there is no room for the file.

        Example:
            >>> prior = pt.load("imagenet.safetensors")
            >>> prior.keep_frames("imagenet.frames.safetensors")
        """
        from posterity.gaussian.kept_frames import keep_frames  # which knows the file format

        keep_frames(self, path)

    def _knows(self, blocks: Iterable[str]) -> None:
        if unknown := [name for name in blocks if name not in self.mean]:
            raise BlockMismatch(f"there are no blocks {unknown} here: the blocks are {list(self.blocks)}.")

    def check_point(self, point: Mapping[str, Tensor]) -> None:
        """`BlockMismatch` unless the point has a matrix of the right shape for every block."""
        if missing := [name for name in self.blocks if name not in point]:
            raise BlockMismatch(f"blocks {missing} are missing in the point given: it has {list(point)}.")
        for name in self.blocks:
            if tuple(point[name].shape) != self.precision[name].shape:
                out, inp = self.precision[name].shape
                raise BlockMismatch(
                    f'block "{name}" is {out}×{inp} in the Gaussian and {"×".join(map(str, point[name].shape))} in the other: '
                    f'refit, or drop the block with .without("{name}").'
                )

    def __repr__(self) -> str:
        return f"Gaussian({self.size} parameters, {brief_blocks(self.precision)})"


def with_frozen(gaussian: Gaussian, model: nn.Module, *, signed: bool = True) -> Gaussian:
    """The Gaussian with the network's present frozen state; `signed` puts its fingerprint into the card, for certificates."""
    blocks = find_blocks(model, named(gaussian.mean))
    card = replace(gaussian.card, frozen=frozen_fingerprint(model, blocks)) if signed else gaussian.card
    return replace(gaussian, frozen=FrozenState.of(model, blocks), card=card)


def check_frozen(gaussian: Gaussian, model: nn.Module) -> None:
    """`FrozenMismatch` if the network computes with anything else beside its blocks than when the Gaussian was made."""
    if gaussian.frozen.tensors or gaussian.frozen.digests:
        gaussian.frozen.check(model, find_blocks(model, named(gaussian.mean)))


def _digests(mean: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: digest(x) for name, x in mean.items()}
