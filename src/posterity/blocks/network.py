"""A network's blocks: finding them, reading and writing them functionally, and running the network while watching them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks.base import Layer
from posterity.blocks.capture import Recorder
from posterity.blocks.convolution import ConvolutionLayer
from posterity.blocks.elementwise import ElementwiseLayer
from posterity.blocks.embedding import EmbeddingLayer
from posterity.blocks.linear import LinearLayer
from posterity.blocks.multihead import attention
from posterity.errors import BlockMismatch, NoBlocks, UnsupportedLayer

Rule = str | type[nn.Module] | Callable[[str, nn.Module], bool]
Selection = Rule | Sequence[Rule] | None
"""Which layers become blocks: names ("fc", "layer4.*"), types (nn.Linear), predicates (name, module), or a list of those."""

KINDS: tuple[tuple[tuple[type[nn.Module], ...], Callable[[Any, bool], Layer]], ...] = (
    ((nn.Linear,), LinearLayer.of),
    ((nn.Conv1d, nn.Conv2d, nn.Conv3d), ConvolutionLayer.of),
    ((nn.Embedding,), EmbeddingLayer.of),
    ((nn.LayerNorm, nn.GroupNorm, nn.RMSNorm), ElementwiseLayer.of),
    ((nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm), ElementwiseLayer.of),
)


@dataclass(frozen=True)
class Block:
    """One named matrix of a network: the kind of layer, and which of the network's parameters it is made of."""

    name: str
    layer: Layer
    parameters: Mapping[str, str]
    """From the layer's own names ("weight", "bias") to the network's ("conv1.weight")."""
    modules: tuple[nn.Module, ...] = field(repr=False, compare=False)
    """More than one where modules share their parameters."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.layer.out, self.layer.inp


def find_blocks(model: nn.Module, select: Selection = None) -> dict[str, Block]:
    """The blocks of a network, in the order of its modules.

    Frozen parameters are constants: a layer without trainable ones is no block, a frozen bias is no column. A layer with
    trainable parameters that cannot become a matrix raises `UnsupportedLayer`, unless `select` leaves it out.
    Modules that share a weight in the same role are one block.
    """
    found: dict[str, Block] = {}
    owner: dict[int, str] = {}
    refused: list[str] = []
    inside_attention: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module in inside_attention:
            continue
        if isinstance(module, nn.MultiheadAttention):
            inside_attention.add(module.out_proj)
            candidates = _attention_parts(name, module)
        else:
            candidates = [(name, module, _own(module, name))]
        for block_name, part, parameters in candidates:
            trainable = {role: p for role, (_, p) in parameters.items() if p.requires_grad}
            if not trainable or not _selected(select, block_name, name, part):
                continue
            problem = _problem(part, parameters, trainable)
            if problem:
                refused.append(f'"{block_name}" ({type(part).__name__}: {problem})')
                continue
            names = {role: parameters[role][0] for role in trainable}
            block = Block(block_name, _layer(part, "bias" in trainable), names, (part,))
            first = owner.setdefault(id(trainable["weight"]), block_name)
            if first == block_name:
                found[block_name] = block
            elif (problem := _tied(found[first], block, model)) is None:
                found[first] = Block(first, block.layer, found[first].parameters, (*found[first].modules, part))
            else:
                refused.append(f'"{block_name}" ({type(part).__name__}: {problem})')
    if refused:
        raise UnsupportedLayer(
            f"{len(refused)} layer(s) with trainable parameters cannot become blocks: {', '.join(refused)}. "
            "Leave them out with blocks=... (names, types or a predicate of what to keep), or freeze them."
        )
    if not found:
        raise NoBlocks(
            f"no block found{'' if select is None else f' for the selection {select!r}'}: the network's trainable layers "
            f"are {[n for n, m in model.named_modules() if any(p.requires_grad for p in m.parameters(recurse=False))]}."
        )
    return found


def read_blocks(model: nn.Module, blocks: Mapping[str, Block]) -> dict[str, Float[Tensor, "out inp"]]:
    """Each block's matrix at the network's present parameters, detached."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {
        name: block.layer.read({role: parameters[full].detach() for role, full in block.parameters.items()})
        for name, block in blocks.items()
    }


def write_blocks(blocks: Mapping[str, Block], matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters for `torch.func.functional_call`, from matrices. The network itself is not touched."""
    result: dict[str, Tensor] = {}
    for name, matrix in matrices.items():
        if name not in blocks:
            raise BlockMismatch(f'there is no block "{name}" in the network: its blocks are {list(blocks)}.')
        block = blocks[name]
        if tuple(matrix.shape[-2:]) != block.shape:
            raise BlockMismatch(
                f'block "{name}" is {block.shape[0]}×{block.shape[1]} in the network and the matrix given is '
                f"{'×'.join(map(str, matrix.shape[-2:]))}."
            )
        result |= {block.parameters[role]: value for role, value in block.layer.write(matrix).items()}
    return result


@contextmanager
def watched(model: nn.Module, blocks: Mapping[str, Block]) -> Iterator[Callable[[Recorder | None], None]]:
    """Evaluation mode, with every call of a block reported to a recorder; all is as before afterwards.

    Yields a function that sets the recorder of the coming batch.
    """
    current: list[Recorder | None] = [None]
    modes = {module: module.training for module in model.modules()}
    hooks = []
    replaced: dict[nn.Module, Any] = {}
    fast = torch.backends.mha.get_fastpath_enabled()

    def hook(name: str, module: nn.Module, args: Any, kwargs: Any, out: Tensor) -> Tensor | None:
        recorder = current[0]
        a = args[0] if args else kwargs["input"]
        return None if recorder is None else recorder.tap(name, a, out)

    def attend(module: nn.MultiheadAttention, names: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = current[0]
        return original(*args, **kwargs) if recorder is None else attention(module, recorder, names, *args, **kwargs)

    try:
        model.eval()
        # The fused path of a transformer layer would call none of its modules.
        torch.backends.mha.set_fastpath_enabled(False)
        for name, block in blocks.items():
            for module in block.modules:
                if not isinstance(module, nn.MultiheadAttention):
                    hooks.append(module.register_forward_hook(partial(hook, name), with_kwargs=True))
        for module, names in _attentions(model, blocks).items():
            replaced[module] = module.__dict__.get("forward")
            module.__dict__["forward"] = partial(attend, module, names, module.forward)
        yield lambda recorder: current.__setitem__(0, recorder)
    finally:
        for handle in hooks:
            handle.remove()
        for module, original in replaced.items():
            if original is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = original
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, training in modes.items():
            module.training = training


def _own(module: nn.Module, name: str) -> dict[str, tuple[str, nn.Parameter]]:
    """A module's own parameters by role, with their names in the network."""
    prefix = f"{name}." if name else ""
    return {role: (prefix + role, p) for role, p in module.named_parameters(recurse=False)}


def _attention_parts(
    name: str, module: nn.MultiheadAttention
) -> list[tuple[str, nn.Module, dict[str, tuple[str, nn.Parameter]]]]:
    """Attention is two linear blocks: the in-projection of query, key and value in one, and the out-projection."""
    own = _own(module, name)
    prefix = f"{name}." if name else ""
    renamed = {role.removeprefix("in_proj_"): entry for role, entry in own.items()}
    out = _own(module.out_proj, f"{prefix}out_proj")
    return [(f"{prefix}in_proj", module, renamed), (f"{prefix}out_proj", module.out_proj, out)]


def _attentions(
    model: nn.Module, blocks: Mapping[str, Block]
) -> dict[nn.MultiheadAttention, tuple[str | None, str | None]]:
    """For each attention module with a block in it, the names of its in- and out-projection blocks."""
    owner = {module: name for name, block in blocks.items() for module in block.modules}
    modules = (m for m in model.modules() if isinstance(m, nn.MultiheadAttention))
    names = {m: (owner.get(m), owner.get(m.out_proj)) for m in modules}
    return {m: pair for m, pair in names.items() if any(pair)}


def _selected(select: Selection, block: str, module_name: str, module: nn.Module) -> bool:
    match select:
        case None:
            return True
        case str():
            return any(fnmatchcase(name, select) for name in (block, module_name))
        case type():
            return isinstance(module, select)
        case Sequence():
            return any(_selected(rule, block, module_name, module) for rule in select)
    return bool(select(block, module))


def _problem(
    module: nn.Module, parameters: Mapping[str, tuple[str, nn.Parameter]], trainable: Mapping[str, nn.Parameter]
) -> str | None:
    """Why a module's trainable parameters cannot become one matrix, if they cannot."""
    if _builder(module) is None:
        return "no known matrix form"
    if unknown := set(trainable) - {"weight", "bias"}:
        return f"parameters {sorted(unknown)} have no place in the matrix"
    if "weight" not in trainable:
        return "its weight is frozen and its bias is not"
    return None


def _builder(module: nn.Module) -> Callable[[Any, bool], Layer] | None:
    if isinstance(module, nn.MultiheadAttention):
        return lambda m, bias: LinearLayer(3 * m.embed_dim, m.embed_dim + bias, bias)
    for types, builder in KINDS:
        for known in types:
            # A subclass with a forward of its own may compute something else.
            if isinstance(module, known) and _forward(type(module)) is _forward(known):
                return builder
    return None


def _forward(kind: type[nn.Module]) -> object:
    """The class that a class takes its forward from."""
    return next(c for c in kind.__mro__ if "forward" in vars(c))


def _layer(module: nn.Module, bias: bool) -> Layer:
    builder = _builder(module)
    assert builder is not None
    return builder(module, bias)


def _tied(first: Block, second: Block, model: nn.Module) -> str | None:
    """Why two modules that share a weight are not one block called from two places, if they are not."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    same = {role: parameters[full] for role, full in first.parameters.items()}
    again = {role: parameters[full] for role, full in second.parameters.items()}
    if first.layer == second.layer and all(same.get(role) is p for role, p in again.items()):
        return None
    return f'it shares its weight with "{first.name}" in another role'
