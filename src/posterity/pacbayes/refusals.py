"""When a certificate would not hold: each reason is looked for before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posterity.blocks import Block, evaluating, find_blocks, named, write_blocks
from posterity.data.batches import Batch
from posterity.data.hashes import by_chance, fingerprint, seen
from posterity.data.near_copies import among
from posterity.data.weights import state
from posterity.errors import (
    BlockMismatch,
    MixedExamples,
    Overlap,
    UndeclaredChoice,
    UnfrozenState,
    UnknownPast,
)
from posterity.gaussian import Gaussian
from posterity.gaussian.card import KnownFeatures
from posterity.gaussian.frozen import frozen_fingerprint
from posterity.novelty import features_of
from posterity.novelty.watching import FEATURES, INPUT, inputs_of
from posterity.pacbayes.bounds import Spending
from posterity.pacbayes.examples import CertificateData

WRITTEN_OUT = 16
"""How many numbers a tensor may have that is written out in the network's code (the mean colour of images, say)."""
LOOKED_AT = 32
"""How many examples show whether a network treats each on its own."""
TOLERANCE = 1e-3
"""How much outputs may differ, relative to the largest, for examples that come in other batches: rounding."""


class OwnTensors(TorchDispatchMode):
    """While it is on, an operation on a tensor from elsewhere raises `UnfrozenState`.

    Known are the tensors given, and all that is computed from them or made by torch itself (`torch.zeros`). What is left is
    kept where parameters, buffers and attributes are not looked for: in a closure or a hook, in an array of NumPy, in a
    module that is no submodule, in an object.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self.known = {_memory(x) for x in known}
        self.scalars = 0
        """How many single numbers were read out of tensors: by `float`, `item`, or an `if`."""
        self.kept: list[Tensor] = []
        """Results stay alive as long as this: memory that is freed could be that of another tensor later."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
        self.scalars += func is torch.ops.aten._local_scalar_dense.default
        written = func is torch.ops.aten.lift_fresh.default
        for x in given:
            if _memory(x) not in self.known and not (written and x.numel() <= WRITTEN_OUT):
                raise UnfrozenState(
                    f"the network computes with a tensor of shape {tuple(x.shape)} that is no parameter, buffer or attribute of "
                    "its modules (one in a closure, a hook, a NumPy array, or a module kept in a list): no one can say what it "
                    "has seen. Register it: register_buffer, nn.Parameter, nn.ModuleList."
                )
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                self.known.add(_memory(x))
                self.kept.append(x)
        return result


OUT_OF_TORCH = {
    getattr(Tensor, name)
    for name in ("tolist", "numpy", "__array__", "__dlpack__", "__repr__", "__format__", "__reduce_ex__", "data_ptr")
} | {Tensor.untyped_storage, Tensor.storage}
"""By which the numbers of a tensor leave torch: what is done with them then, no one sees."""


class InsideTorch(TorchFunctionMode):
    """While it is on, reading the numbers of a tensor as Python's or NumPy's raises `UnfrozenState`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in OUT_OF_TORCH:
            raise _read_out(f"Tensor.{getattr(func, '__name__', func)}")
        return func(*args, **(kwargs or {}))


def _read_out(how: str) -> UnfrozenState:
    return UnfrozenState(
        f"the network reads numbers of its inputs out of torch ({how}), and no one can say what it compares them with: a table "
        "of answers would look the same. Compute with tensors alone."
    )


def _memory(x: Tensor) -> int:
    """Where a tensor's numbers are; views of one tensor share it."""
    with torch._C.DisableTorchFunction():
        return int(x.untyped_storage()._cdata) if not x.is_sparse else id(x)


@dataclass(frozen=True)
class CertificateTerms:
    """A certificate may be made: the network's blocks, what was looked for, and what has to be paid."""

    blocks: dict[str, Block]
    notes: tuple[str, ...]
    spending: Spending
    generator: torch.Generator
    """Of the draws."""


def checked(
    model: nn.Module,
    posterior: Gaussian,
    prior: Gaussian,
    examples: CertificateData,
    spending: Spending,
    grid: int = 1,
    vouched: str | None = None,
    generator: torch.Generator | None = None,
    apart: str | None = None,
) -> CertificateTerms:
    """Raises what is found. `grid` are priors that the user has chosen among; `vouched` answers for unknown pasts.

    Without a generator the seed of the draws follows from the prior, the posterior and the examples. `apart` says how it is known
    that the examples are other rows than the prior's, where that is not to be distinguished from their values.
    """
    if posterior.blocks != prior.blocks:
        odd = sorted(set(posterior.blocks) ^ set(prior.blocks))
        raise BlockMismatch(f"posterior and prior speak of different blocks ({odd}): both must speak of the same.")
    if grid < 1:
        raise ValueError(f"grid is at least 1, not {grid}")
    blocks = find_blocks(model, named(posterior.mean))
    notes = [*unseen(prior, examples, vouched, apart=apart), _nothing_else(model, blocks, prior, vouched)]
    _each_on_its_own(model, blocks, posterior, examples.batches[0])
    if examples.n < examples.count and not examples.grouped:
        notes.append(f"{examples.count:,} examples, of which {examples.n:,} are distinct: n counts those")
    notes += examples.notes
    if generator is None:
        generator = _own_generator(model, posterior, prior, examples)
        notes.append("the seed of all draws follows from prior, posterior and examples: none was chosen")
    else:
        notes.append("the seed of all draws was given: the least of K certificates by K seeds needs grid=K")
    return CertificateTerms(blocks, tuple(notes), _choices(prior, examples, grid, spending), generator)


def _own_generator(
    model: nn.Module, posterior: Gaussian, prior: Gaussian, examples: CertificateData
) -> torch.Generator:
    """Draws that no one can choose: who asks again, in whatever order the examples come, gets the same seed."""
    same = posterior is prior
    names = (prior.fingerprint(), "" if same else posterior.fingerprint(), examples.fingerprint)
    device = next(model.parameters()).device
    return torch.Generator(device).manual_seed(int(fingerprint(names, 15), 16))


def unseen(
    prior: Gaussian, examples: CertificateData, vouched: str | None, who: str = "the prior", apart: str | None = None
) -> list[str]:
    """What can be said of a Gaussian's past; raises where it has seen the examples, or may have."""
    past = prior.provenance
    if past.gaps and vouched is None:
        raise UnknownPast(
            f"it is not known what {who} has seen: {'; '.join(past.gaps)}. Learn it with `pt.learn` from an untrained "
            'network, or vouch for it with vouched="…", a text that the certificate then prints.'
        )
    shared = int(seen(past.hashes, examples.hashes).sum())
    apart = apart or (vouched and f"vouched for: {vouched}")
    if shared > by_chance(examples.hashes) and not (examples.few_values and apart):
        if examples.few_values:
            raise Overlap(
                f"{shared:,} of the {examples.count:,} rows have the values of rows that {who} was learned from. In a table of "
                "so few values that is no evidence, either way: split it with `split_prior`, which knows its rows, or answer for "
                'it with vouched="other rows of the same table".'
            )
        raise Overlap(
            f"{shared:,} of the {examples.count:,} examples are among those that {who} was learned from: certify with "
            "others, or split the data first (`split_prior`)."
        )
    rows = [inputs_of(batch.positional, batch.named) for batch in examples.batches]
    near = 0 if examples.few_values else near_known(prior.known, rows)
    if near and not apart:
        raise Overlap(
            f"{near:,} of {examples.count:,} examples are near copies of those that {who} was learned from (noisy, rounded, or "
            'on another scale): certify with others, or answer for it with vouched="…".'
        )
    if examples.few_values and past.count:
        notes = [
            f"rows are known to be others than the prior's {past.count:,}, not by their values: {apart or 'none is equal'}"
        ]
    elif past.count:
        notes = [
            f"none of the {examples.count:,} examples is among the prior's {past.count:,} (in any shape or precision; copies "
            "under another transform cannot be known)"
        ]
    else:
        notes = ["the prior has seen no data"]
    if near:
        notes.append(f"{near:,} examples look like near copies of the prior's, and are other rows: {apart}")
    notes += [f"the prior's past, vouched for: {text}" for text in past.vouchers]
    if past.gaps:
        notes.append(f"the prior's past ({'; '.join(past.gaps)}), vouched for: {vouched}")
    return notes


def near_known(known_features: KnownFeatures, rows: Sequence[Tensor | None]) -> int:
    """How many inputs are near copies of those that are kept; 0 where none of their kind are."""
    kept = features_of(known_features)
    known = kept.get(INPUT, kept.get(FEATURES))
    if known is None or any(x is None or x.shape[1:] != known.shape[1:] for x in rows):
        return 0
    return among(known, torch.cat([x.detach().cpu() for x in rows if x is not None]))


def _nothing_else(model: nn.Module, blocks: dict[str, Block], prior: Gaussian, vouched: str | None) -> str:
    known = {full for block in blocks.values() for full in block.parameters.values()}
    shared = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if name in known}
    free = [n for n, p in model.named_parameters() if p.requires_grad and n not in known and id(p) not in shared]
    if free:
        raise UnfrozenState(
            f"{', '.join(free[:5])}{' and others' if len(free) > 5 else ''} can be trained and are in no block of the "
            "prior: freeze them at values from before the data was seen (requires_grad_(False)), or give them a prior."
        )
    now = frozen_fingerprint(model, blocks)
    if now != prior.card.frozen:
        if vouched is None:
            raise UnfrozenState(
                "what the network computes with beside its blocks (norm statistics, frozen weights, other tensors) is not what "
                "it was when the prior was made: put norm layers into evaluation mode and freeze them before training, restore "
                'their values from before the data was seen, or vouch for them with vouched="…".'
            )
        return f"frozen parts, vouched for: {vouched}"
    return (
        "all else in the network is as it was when the prior was made" if now else "nothing but blocks in the network"
    )


@torch.no_grad()
def _each_on_its_own(model: nn.Module, blocks: dict[str, Block], posterior: Gaussian, batch: Batch) -> None:
    """Whether the network says the same of an example, whatever others come with it, and computes with what it owns alone.

    Looked at for one draw of the weights: some examples of the first batch by threes, and as part of the whole batch.
    """
    like = next(model.parameters())
    batch = batch.to(like.device)
    some = batch.rows(torch.arange(min(batch.count, LOOKED_AT)))
    drawn = posterior.sample(1, generator=torch.Generator().manual_seed(0))
    weights = write_blocks(blocks, {name: x[0].to(like) for name, x in drawn.items()})
    with evaluating(model):
        few = some.rows(torch.arange(min(batch.count, 3)))
        reads = []
        for part in (few, some):
            own = (x for _, x in state(model))
            with InsideTorch(), OwnTensors((*own, *weights.values(), *part.tensors(), part.targets)) as looked:
                part.outputs(model, weights)
            reads.append(looked.scalars)
        if some.count < 2:
            return
        # A condition on the whole batch is read once, however large it is. What grows is read for every example.
        if reads[1] > reads[0] + 1:
            raise _read_out(f"{reads[0]} times for {few.count} examples, {reads[1]} times for {some.count}")
        together = batch.outputs(model, weights)[: some.count]
        try:
            alone = torch.cat([some.rows(rows).outputs(model, weights) for rows in torch.arange(some.count).split(3)])
        except (RuntimeError, ValueError):
            alone = torch.full_like(together, torch.nan)
    if not bool(torch.isfinite(together).all()):
        return  # which is reported where errors are counted
    size = float(together.abs().max())
    if together.shape != alone.shape or not float((together - alone).abs().max()) <= TOLERANCE * (1 + size):
        raise MixedExamples(
            "the network's output for an example depends on the others in its batch (norm layers without running statistics, "
            "or chance): then no example has an error of its own. Give norm layers statistics, and switch chance off."
        )


def _choices(prior: Gaussian, examples: CertificateData, grid: int, spending: Spending) -> Spending:
    """What the examples chose, or may have chosen, is paid for."""
    for choice in prior.provenance.choices:
        if not choice.concerns(examples.hashes):
            continue
        if choice.options is None and grid == 1:
            raise UndeclaredChoice(
                f"{choice.what} of the prior was chosen by data, perhaps by these examples, and no one wrote down from how many: "
                "declare how many priors there were to choose from, before the data was seen, with grid=K."
            )
        spending = spending.paying(choice.what, choice.options or 1)
    return spending.paying("priors declared", grid)
