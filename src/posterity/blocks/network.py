"""A network's blocks: finding them, reading and writing them functionally, and running the network while watching them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeGuard, get_args

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from posterity.blocks.base import Block, Layer, Recorder
from posterity.blocks.convolution import ConvolutionLayer
from posterity.blocks.elementwise import ElementwiseLayer, Norm
from posterity.blocks.embedding import EmbeddingLayer
from posterity.blocks.linear import LinearLayer, TransposedLinearLayer
from posterity.blocks.multihead import Parts, attention, plain_attention
from posterity.blocks.tied import head_of, why_apart
from posterity.errors import BlockMismatch, NoBlocks, UnsupportedLayer

Rule = str | type[nn.Module] | Callable[[str, nn.Module], bool]
Selection = Rule | Sequence[Rule] | None
"""Which layers become blocks: names ("fc", "layer4.*"), types (nn.Linear), predicates (name, module), or a list of those."""

KINDS: tuple[tuple[tuple[type[nn.Module], ...], Callable[[Any, bool], Layer]], ...] = (
    ((nn.Linear,), LinearLayer.of),
    ((nn.Conv1d, nn.Conv2d, nn.Conv3d), ConvolutionLayer.of),
    ((nn.Embedding,), EmbeddingLayer.of),
    ((*get_args(Norm), nn.SyncBatchNorm), ElementwiseLayer.of),
)

REGISTERED: dict[str, Callable[[Any, bool], Layer]] = {
    "transformers.pytorch_utils.Conv1D": TransposedLinearLayer.of,
}
"""Layers of other libraries and of users, by the full name of their class: a library need not be imported to be known."""


def register_layer(kind: type[nn.Module] | str, builder: Callable[[Any, bool], Layer]) -> None:
    """Teach `find_blocks` a layer of your own, or one of another library.

    Args:
        kind: the class, or its full name ("package.module.Class"). Subclasses with a forward of their own are not meant.
        builder: from a module, and whether its bias is trainable, to a `Layer`, which says how the parameters "weight" and
            "bias" become one matrix and what its rows are: `TransposedLinearLayer.of` is a short one to read.

    Example:
        >>> posterity.blocks.register_layer("mylib.layers.LinearIO", TransposedLinearLayer.of)
    """
    REGISTERED[kind if isinstance(kind, str) else _full_name(kind)] = builder


def named(names: Container[str]) -> Callable[[str, nn.Module], bool]:
    """A rule that selects blocks by name: `find_blocks(model, named(gaussian.mean))`. No character is a pattern here."""
    return lambda block, module: block in names


def has_matrix_form(module: nn.Module) -> bool:
    """Whether a module is of a kind whose weight and bias become one matrix."""
    return _builder(module) is not None


def find_blocks(model: nn.Module, select: Selection = None) -> dict[str, Block]:
    """The blocks of a network, in the order of its modules.

    Frozen parameters are constants: a layer without trainable ones is no block, a frozen bias is no column. A layer with
    trainable parameters that cannot become a matrix raises `UnsupportedLayer`, unless `select` leaves it out.
    Modules that share a weight in the same role are one block, and so are an embedding and the head that shares its weight;
    who selects one of them selects the weight, and with it all of them.
    """
    found: dict[str, Block] = {}
    owner: dict[int, str] = {}
    refused: list[str] = []
    candidates = list(_candidates(model, select))
    chosen = {id(p) for c in candidates if c.selected for p in c.trainable.values()}
    for one in candidates:
        if not one.selected and not any(id(p) in chosen for p in one.trainable.values()):
            continue
        problem = _problem(one.part, one.trainable)
        if problem is None:
            block = one.block()
            first = next((owner[id(p)] for p in one.trainable.values() if id(p) in owner), None)
            if first is None:
                found[one.name] = block
            elif (head := head_of(found[first], block, model)) is not None:
                found[first] = head
            elif (problem := why_apart(found[first], block, model)) is None:
                found[first] = Block(first, block.layer, found[first].parameters, (*found[first].modules, one.part))
        if problem is None:
            owner |= dict.fromkeys(map(id, one.trainable.values()), first or one.name)
        elif one.selected:
            refused.append(f'"{one.name}" ({type(one.part).__name__}: {problem})')
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
        # A copy: without a bias the matrix would be a view, and change when the network is trained.
        name: block.layer.read({role: parameters[full].detach() for role, full in block.parameters.items()}).clone()
        for name, block in blocks.items()
    }


def write_blocks(blocks: Mapping[str, Block], matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters for `run_with`, from matrices. The network itself is not touched."""
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
def evaluating(model: nn.Module) -> Iterator[None]:
    """All modules in evaluation mode, and each in its own again afterwards, also after an error."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def frozen_outside(model: nn.Module, select: Selection) -> Iterator[None]:
    """Only the selected layers are trainable; afterwards each parameter is as it was. None selects all."""
    if select is None:
        yield
        return
    inside = {full for block in find_blocks(model, select).values() for full in block.parameters.values()}
    held = [p for name, p in model.named_parameters() if p.requires_grad and name not in inside]
    try:
        for p in held:
            p.requires_grad_(False)
        yield
    finally:
        for p in held:
            p.requires_grad_(True)


def run_with(
    model: nn.Module, tensors: Mapping[str, Tensor], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
) -> Any:
    """The network's output with other parameters or buffers, in every place that holds them; its own are back afterwards.

    `torch.func.functional_call` does the same, fails where one *module* is registered under two names, and takes as long as
    a pass of a small network.
    """
    held, given, known = [], {}, set()
    for prefix, module in model.named_modules(remove_duplicate=False):
        for own in (module._parameters, module._buffers):
            for local, tensor in own.items():
                name = f"{prefix}.{local}" if prefix else local
                held.append((own, local, tensor))
                if tensor is not None and name in tensors:
                    given[id(tensor)] = tensors[name]
                    known.add(name)
    if unknown := [name for name in tensors if name not in known]:
        raise BlockMismatch(f"the network has no parameter or buffer {unknown}.")
    places = [place for place in held if id(place[2]) in given]
    try:
        for own, local, tensor in places:
            own[local] = given[id(tensor)]
        return model(*args, **dict(kwargs or {}))
    finally:
        for own, local, tensor in places:
            own[local] = tensor


@contextmanager
def watched(model: nn.Module, blocks: Mapping[str, Block]) -> Iterator[Callable[[Recorder | None], None]]:
    """Evaluation mode, with every call of a block reported to a recorder; all is as before afterwards.

    Yields a function that sets the recorder of the coming batch.
    """
    current: list[Recorder | None] = [None]
    hooks = []
    replaced: dict[nn.Module, Any] = {}

    def hook(block: Block, module: nn.Module, args: Any, kwargs: Any, out: Tensor) -> Tensor | None:
        recorder = current[0]
        (a,) = args or kwargs.values()  # every layer takes one tensor, whatever it calls it
        return None if recorder is None else recorder.tap(block.name, block.layer, a, out)

    def attend(module: nn.MultiheadAttention, parts: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = current[0]
        return original(*args, **kwargs) if recorder is None else attention(module, recorder, parts, *args, **kwargs)

    with evaluating(model), plain_attention():
        try:
            for block in blocks.values():
                for module in block.modules:
                    if not isinstance(module, nn.MultiheadAttention):
                        hooks.append(module.register_forward_hook(partial(hook, block), with_kwargs=True))
            for module, parts in _attentions(model, blocks).items():
                replaced[module] = module.__dict__.get("forward")
                module.__dict__["forward"] = partial(attend, module, parts, module.forward)
            yield lambda recorder: current.__setitem__(0, recorder)
        finally:
            # The recorder knows its estimator and the estimator this function: let go of it, or both outlive their use.
            current[0] = None
            for handle in hooks:
                handle.remove()
            for module, original in replaced.items():
                if original is None:
                    del module.__dict__["forward"]
                else:
                    module.__dict__["forward"] = original


@dataclass(frozen=True)
class _Candidate:
    """A module, or a part of one, with trainable parameters of its own."""

    name: str
    part: nn.Module
    names: Mapping[str, str]
    """Of its parameters in the network, by role."""
    trainable: Mapping[str, nn.Parameter]
    selected: bool

    def block(self) -> Block:
        names = {role: self.names[role] for role in self.trainable}
        builder = _builder(self.part)
        assert builder is not None
        return Block(self.name, builder(self.part, "bias" in self.trainable), names, (self.part,))


def _candidates(model: nn.Module, select: Selection) -> Iterator[_Candidate]:
    """All that could become a block, in the order of the network's modules."""
    inside_attention: set[nn.Module] = set()
    in_layers = {id(p) for m in model.modules() if has_matrix_form(m) for p in m.parameters(recurse=False)}
    for name, module in model.named_modules():
        if module in inside_attention:
            continue
        if _is_attention(module):
            inside_attention.add(module.out_proj)
            parts = _attention_parts(name, module)
        else:
            parts = [(name, module, _own(module, name))]
        for block_name, part, parameters in parts:
            trainable = {role: p for role, (_, p) in parameters.items() if p.requires_grad}
            if not has_matrix_form(part):
                # A parameter that a layer holds too is that layer's, and only kept here, as by heads of BERT.
                trainable = {role: p for role, p in trainable.items() if id(p) not in in_layers}
            if trainable:
                names = {role: full for role, (full, _) in parameters.items()}
                selected = _selected(select, block_name, name, part, module)
                yield _Candidate(block_name, part, names, trainable, selected)


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


def _attentions(model: nn.Module, blocks: Mapping[str, Block]) -> dict[nn.MultiheadAttention, Parts]:
    """For each attention module with a block in it, its in- and out-projection blocks."""
    owner = {module: (block.name, block.layer) for block in blocks.values() for module in block.modules}
    parts = {m: (owner.get(m), owner.get(m.out_proj)) for m in model.modules() if _is_attention(m)}
    return {m: pair for m, pair in parts.items() if any(pair)}


def _is_attention(module: nn.Module) -> TypeGuard[nn.MultiheadAttention]:
    """Attention as torch computes it. A subclass with a forward of its own may compute something else."""
    return isinstance(module, nn.MultiheadAttention) and _forward(type(module)) is nn.MultiheadAttention


def _selected(select: Selection, block: str, module_name: str, part: nn.Module, module: nn.Module) -> bool:
    """Whether a rule means a block: by its own name and type, or by those of the attention that it is part of."""
    match select:
        case None:
            return True
        case str():
            return any(fnmatchcase(name, select) for name in (block, module_name))
        case type():
            return isinstance(part, select) or isinstance(module, select)
        case Sequence():
            return any(_selected(rule, block, module_name, part, module) for rule in select)
    return bool(select(block, part))


def _problem(module: nn.Module, trainable: Mapping[str, nn.Parameter]) -> str | None:
    """Why a module's trainable parameters cannot become one matrix, if they cannot."""
    if is_parametrized(module):
        return "parametrized: its weight is computed from others"
    if _builder(module) is None:
        return "no known matrix form"
    if unknown := set(trainable) - {"weight", "bias"}:
        return f"parameters {sorted(unknown)} have no place in the matrix"
    if "weight" not in trainable:
        return "its weight is frozen and its bias is not"
    if any(is_lazy(p) for p in trainable.values()):
        return "its size is not known before a first batch"
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
        return "it normalises by the batch, so no example has a gradient of its own"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm changes its weight whenever it is called"
    return None


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _builder(module: nn.Module) -> Callable[[Any, bool], Layer] | None:
    if (found := REGISTERED.get(_full_name(_forward(type(module))))) is not None:
        return found
    if _is_attention(module):
        return lambda m, bias: LinearLayer(3 * m.embed_dim, m.embed_dim + bias, bias)
    for types, builder in KINDS:
        for known in types:
            # A subclass with a forward of its own may compute something else.
            if isinstance(module, known) and _forward(type(module)) is _forward(known):
                return builder
    return None


def _forward(kind: type[nn.Module]) -> type:
    """The class that a class takes its forward from."""
    return next(c for c in kind.__mro__ if "forward" in vars(c))
