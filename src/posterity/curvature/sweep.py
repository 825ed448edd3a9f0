"""The verb: one pass over the data, from a network to its curvature, and what that leaves behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posterity.algebra import Matrix
from posterity.bars import track
from posterity.blocks import Block, Call, Recorder, Selection, find_blocks, read_blocks, watched
from posterity.brief import brief_blocks
from posterity.checks import admitted
from posterity.curvature.base import Accumulator, Estimator
from posterity.curvature.kfoc import KFOC
from posterity.curvature.likelihoods import Categorical, Likelihood
from posterity.curvature.partial import ResumeFile
from posterity.data.batches import Batch, Data, Workers, batch_count, batches, check_data
from posterity.data.hashes import Hashes, batch_hashes, gathered
from posterity.data.provenance import Provenance, matrices_digest, past_of
from posterity.errors import BadData, NoData, NotFinite, UnreachedBlock
from posterity.files import resuming
from posterity.memory import require_memory

KEPT = ("phase", "batches", "nll", "count", "seen", "hashes", "start")
"""What a checkpoint keeps of a pass as it is."""
SMALL = 64 * 2**20
"""Bytes of sums that are taken without asking how many are left."""
LARGE_INPUT, HELD = 2**20, 2**27
"""Bytes of a batch's inputs from which on it is asked what layers put out for it, and bytes of that which are held at a time."""


@dataclass(frozen=True)
class Curvature:
    """A matrix per block, summed over the data, with the summed negative log-likelihood (nats) and the number of examples."""

    blocks: Mapping[str, Matrix]
    nll: float
    count: int
    estimator: Estimator
    likelihood: Likelihood
    provenance: Provenance = field(default_factory=lambda: Provenance.unknown("curvature made by hand"))
    """What the curvature depends on: the examples, and what the network's weights had seen."""
    at: str = ""
    """A digest of the blocks' weights at which it was estimated."""

    def __getitem__(self, block: str) -> Matrix:
        return self.blocks[block]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Curvature:
        """The same on another device, or in another precision."""
        return replace(self, blocks={name: matrix.to(device, dtype) for name, matrix in self.blocks.items()})

    def __repr__(self) -> str:
        return f"Curvature({self.estimator}, {self.count} examples, {self.nll:.6g} nats, {brief_blocks(self.blocks)})"


def estimate(
    model: nn.Module,
    data: Data,
    estimator: Estimator | None = None,
    likelihood: Likelihood | None = None,
    *,
    blocks: Selection = None,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Curvature:
    """The curvature of a network on data: a matrix per block summed over the data, the summed NLL, and N.

    One pass (two for EKFAC), in evaluation mode, without gradients of weights. The model comes out exactly as it went in,
    its mode and statistics included, also after an error. Under `torch.distributed` each process sees its share of the
    batches and all return the same result.

    Args:
        model: the network, at the weights where its curvature is wanted.
        data: a pair of tensors, a `Dataset`, a `DataLoader`, or batches as mappings.
        estimator: `KFOC()` (the default), `KFAC()`, `EKFAC()`, `Diagonal()` or `Dense()`.
        likelihood: of the outputs; `Categorical()` by default.
        blocks: which layers, by name, type or predicate; all of them by default.
        batch_size: into what tensors and datasets are cut; a `DataLoader` brings its own. Batches whose activations take more
            than 128 MB go through in parts.
        generator: of the labels that are drawn from the model, where the estimator draws any.
        checkpoint: a file to keep the sums in on the way, about once a minute. Where it is there already the pass goes on from
            it, to the same result as without a break; it is removed at the end. Every process has one of its own.
        progress: whether to show a bar once it takes longer than two seconds.
    Returns:
        A `Curvature`: matrices by block, summed negative log-likelihood in nats, number of examples.
    Raises:
        UnsupportedLayer: if a trainable layer has no matrix form and `blocks` does not leave it out.
        NoData: if the data is empty.
        BadCheckpoint: if the checkpoint is damaged, or of another network, estimator, number of processes or other data.
        TooLittleMemory: if the sums do not fit; reported before anything is allocated.

    Example:
        >>> curvature = pt.estimate(model, (x, y), pt.KFAC(pt.curvature.Exact()))
        >>> curvature["fc"].trace(), curvature.nll, curvature.count
    """
    data, _ = admitted(model, data, likelihood, estimator)
    estimator, likelihood = estimator or KFOC(), likelihood or Categorical()
    check_data(data)
    found = find_blocks(model, blocks)
    workers = Workers.here()
    need = sum(estimator.memory(block) for block in found.values())
    if need > SMALL:
        require_memory(
            need,
            f"the curvature of {len(found)} blocks by {type(estimator).__name__}",
            "Use Diagonal(), leave blocks out with blocks=..., or use a machine with more.",
        )
    if generator is None or workers.size > 1:
        # Workers are often started with one seed; labels are to be drawn independently all the same.
        device = None if generator is None else generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
        generator = torch.Generator().manual_seed(seed + workers.rank)
    at = matrices_digest(read_blocks(model, found))
    settings = {
        "the estimator": repr(estimator),
        "the likelihood": repr(likelihood),
        "the weights' digest": at,
        "the batch size": batch_size,
        "the number of processes": workers.size,
    }
    partial = None if checkpoint is None else ResumeFile(checkpoint, workers, settings)
    with torch.inference_mode(False), watched(model, found) as watch:
        pass_over = _Pass(model, found, estimator, likelihood, generator, watch, partial)
        phases = max(a.phases for a in pass_over.accumulators.values())
        for phase in range(pass_over.phase, phases):
            if phase > pass_over.phase:
                pass_over.next_phase(workers)
            share = batches(data, batch_size, workers)
            total = batch_count(data, batch_size, workers)
            for batch in track(share, total, f"curvature ({type(estimator).__name__})", progress):
                for piece in pass_over.pieces(batch):
                    pass_over.take(piece)
    result = pass_over.result(data, workers, at)
    if partial is not None:
        partial.done()
    return result


@dataclass(eq=False)
class _Pass:
    """The state of one estimate: an accumulator per block, and what was summed beside them."""

    model: nn.Module
    blocks: dict[str, Block]
    estimator: Estimator
    likelihood: Likelihood
    generator: torch.Generator
    watch: Callable[[Recorder | None], None]
    partial: ResumeFile | None

    def __post_init__(self) -> None:
        first = next(self.model.parameters())
        self.device = first.device
        dtype = torch.float64 if first.dtype == torch.float64 else torch.float32
        self.accumulators: dict[str, Accumulator] = {n: self.estimator.start(b, dtype) for n, b in self.blocks.items()}
        # Detached parameters keep weights out of the backward pass; cloned buffers keep the network's own untouched.
        self.parameters: dict[str, Tensor] = {n: p.detach() for n, p in self.model.named_parameters()}
        self.parameters |= {n: b.detach().clone() for n, b in self.model.named_buffers()}
        self.keep = any(a.needs_inputs for a in self.accumulators.values())
        self.nll, self.count, self.seen, self.phase = 0.0, 0, 0, 0
        self.reached: set[str] = set()
        self.hashes: list[Hashes | None] = []
        self.unreadable: BadData | None = None
        self.start = self.generator.get_state()
        self.batches, self.skipped = 0, 0
        self.largest: int | None = None
        """As many examples as a large batch is cut into, once that is known."""
        if self.partial is not None and self.partial.found is not None:
            with resuming(self.partial.path, "this estimate"):
                self._restore(self.partial.found)

    def pieces(self, batch: Batch) -> list[Batch]:
        """A batch in parts whose layers put out no more than `HELD` bytes; as it is where its inputs are small."""
        given = [x for x in (*batch.positional, *batch.named.values()) if isinstance(x, Tensor)]
        if sum(x.nbytes for x in given) <= LARGE_INPUT:
            return [batch]
        if self.largest is None:
            some, found = batch.rows(torch.arange(min(2, batch.count))).to(self.device), list[int]()
            count = lambda _, __, out: found.append(out.nbytes if isinstance(out, Tensor) else 0)  # noqa: E731
            hooks = [m.register_forward_hook(count) for m in self.model.modules() if not any(m.children())]
            self.watch(None)
            try:
                with torch.no_grad():
                    some.outputs(self.model, self.parameters)
            finally:
                for hook in hooks:
                    hook.remove()
            self.largest = max(1, HELD * some.count // max(1, sum(found)))
        return [batch.rows(part) for part in torch.arange(batch.count).split(self.largest)]

    def take(self, batch: Batch) -> None:
        """See a batch, unless its sums came from the checkpoint."""
        if self.partial is not None and self.batches < self.skipped:
            self.partial.check_same(self._hashed(batch), self.batches)
            self.batches += 1
            return
        self.see(batch)
        self.batches += 1
        if self.partial is not None:
            self.partial.keep(self._state)

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in KEPT} | {
            "accumulators": {name: a.state() for name, a in self.accumulators.items()},
            "reached": sorted(self.reached),
            "generator": self.generator.get_state(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        for name, accumulator in self.accumulators.items():
            accumulator.restore(state["accumulators"][name])
        for name in KEPT:
            setattr(self, name, state[name])
        self.skipped, self.batches, self.reached = self.batches, 0, set(state["reached"])
        self.generator.set_state(state["generator"])

    def see(self, batch: Batch) -> None:
        batch = batch.to(self.device)
        self.last, self.batch = False, batch.index
        recorder = Recorder(batch.count, self._input, self._gradient, self.keep)
        self.watch(recorder)
        with torch.enable_grad():
            raw = batch.outputs(self.model, self.parameters)
            outputs, targets = self.likelihood.check(raw, batch.targets)
        detached = outputs.detach().float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs.detach()
        nll = float(self.likelihood.nll(detached, targets))
        if not math.isfinite(nll):
            raise NotFinite(
                f"the loss of batch {batch.index} is {nll}: look for diverged weights or bad inputs in that batch."
            )
        self.reached |= set(recorder.calls)
        self._check_reached()
        coming = iter(self.estimator.labels.vectors(self.likelihood, detached, targets, self.generator))
        vector = next(coming, None)
        while vector is not None:
            following = next(coming, None)
            self.last = following is None
            recorder.backward(outputs, vector.to(outputs.dtype), again=not self.last)
            vector = following
        self.seen += batch.count
        if self.phase == 0:
            self.nll += nll
            self.count += batch.count
            self.hashes.append(self._hashed(batch))

    def _hashed(self, batch: Batch) -> Hashes | None:
        """Hashes of a batch's examples, taken while they are in memory."""
        try:
            return batch_hashes(batch)
        except BadData as error:
            self.unreadable = error
            return None

    def _input(self, name: str, a: Tensor) -> None:
        if self.phase < self.accumulators[name].phases:
            with self._full_precision():
                self.accumulators[name].see_input(a)

    def _gradient(self, name: str, calls: list[Call]) -> None:
        if not all(math.isfinite(float(call.s.sum())) for call in calls if call.s is not None):
            raise NotFinite(
                f'the gradients at block "{name}" are not finite in batch {self.batch}, though the loss is: they leave the '
                "range of the network's precision. Run it in float32 or bfloat16."
            )
        if self.phase < self.accumulators[name].phases:
            with self._full_precision():
                self.accumulators[name].see_gradients(calls, self.last)

    @contextmanager
    def _full_precision(self) -> Iterator[None]:
        """Sums are no part of the network: autocast around it, or inside it, does not reach them."""
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            yield

    def _check_reached(self) -> None:
        if missing := [name for name in self.blocks if name not in self.reached]:
            raise UnreachedBlock(
                f"the network ran without calling {missing}: their weights are unused, or used without calling the module. "
                "Leave them out with blocks=..."
            )

    def next_phase(self, workers: Workers) -> None:
        self._check_complete()
        # The same labels again: each phase belongs to the same Fisher information.
        self.generator.set_state(self.start)
        self.seen, self.batches, self.skipped = 0, 0, 0
        self.phase += 1
        for accumulator in self.accumulators.values():
            if accumulator.phases > 1:
                accumulator.next_phase(workers)

    def _check_complete(self) -> None:
        if self.partial is not None:
            self.partial.check_reached(self.batches)
        if self.seen != self.count:
            raise BadData(
                f"the first pass over the data met {self.count} examples, the second {self.seen}, and "
                f"{type(self.estimator).__name__} must read the data twice: give a DataLoader, a Dataset or a list instead "
                "of something that is used up."
            )

    def _provenance(self, data: Data, workers: Workers) -> Provenance:
        weights = past_of(self.model).joined(self.estimator.seen)
        if self.unreadable is not None:
            return weights.joined(Provenance.unknown(f"the data cannot be distinguished: {self.unreadable}"))
        known = [hashes for hashes in self.hashes if hashes is not None]
        return weights.joined(Provenance.read(data, gathered(known, workers)))

    def result(self, data: Data, workers: Workers, at: str) -> Curvature:
        self._check_complete()
        count = int(workers.total(self.count))
        if not count:
            raise NoData("the data held no example.")
        matrices: dict[str, Matrix] = {name: a.result(workers) for name, a in self.accumulators.items()}
        return Curvature(
            matrices,
            workers.total(self.nll),
            count,
            self.estimator,
            self.likelihood,
            self._provenance(data, workers),
            at,
        )
