"""A column: one task's copy of the architecture, and the lateral layers that lead into it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import nn

from posterity.blocks import has_matrix_form
from posterity.errors import BadHead, BadLateral

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True, eq=False)
class Column:
    """The network of one task, and `laterals[i][k]`: what leads from column i into this one at the k-th lateral layer."""

    module: nn.Module
    laterals: nn.ModuleList

    @property
    def parameters(self) -> int:
        """How many numbers this column added. Frozen parts that all columns share are not counted."""
        return sum(p.numel() for part in (self.module, self.laterals) for p in part.parameters() if p.requires_grad)

    @property
    def bytes(self) -> int:
        """What its weights take in memory."""
        return sum(p.nbytes for p in self.tensors)

    @property
    def tensors(self) -> list[nn.Parameter]:
        """Its weights. Frozen parts that all columns share are not among them."""
        return [p for part in (self.module, self.laterals) for p in part.parameters() if p.requires_grad]


@dataclass(frozen=True, eq=False)
class Architecture:
    """What all columns have in common: a template, where laterals arrive, and which layer is the head."""

    template: nn.Module
    laterals: tuple[str, ...]
    head: str

    @classmethod
    def of(cls, model: nn.Module, laterals: Sequence[str] | str, head: str | None) -> Architecture:
        """The architecture, with every name checked. The model is kept as it is, and never trained."""
        head = _last_linear(model) if head is None else head
        _check_head(model, head)
        return cls(model, _lateral_layers(model, [laterals] if isinstance(laterals, str) else laterals, head), head)

    def grow(self, earlier: Sequence[Column], outputs: int, seed: int) -> Column:
        """A new column with a head of its own; its laterals start as the layers of the columns that they come from.

        What is frozen in the template (requires_grad False) is shared by all columns, not copied.
        """
        kept = {id(p): p for p in self.template.parameters() if not p.requires_grad}
        shared = {id(m): m for m in self.template.modules() if is_frozen(m)}
        module: nn.Module = copy.deepcopy(self.template, kept | shared)
        module.set_submodule(self.head, _fresh_head(self.template.get_submodule(self.head), outputs, seed))
        laterals = nn.ModuleList(
            nn.ModuleList(copy.deepcopy(source.module.get_submodule(path)) for path in self.laterals)
            for source in earlier
        )
        return Column(module, laterals)


def is_frozen(module: nn.Module) -> bool:
    """Whether a module has parameters, and none that could be trained."""
    parameters = list(module.parameters())
    return bool(parameters) and not any(p.requires_grad for p in parameters)


def _lateral_layers(model: nn.Module, rules: Sequence[str], head: str) -> tuple[str, ...]:
    """The layers that rules mean, in the network's order: exact paths first, patterns where no path fits."""
    modules = dict(model.named_modules())
    callable_blocks = [name for name, module in modules.items() if _has_weights(module) and not _unheard(model, name)]
    chosen: set[str] = set()
    for rule in rules:
        found = [rule] if rule in modules else [name for name in modules if name and fnmatchcase(name, rule)]
        if not found:
            raise BadLateral(
                f'laterals: there is no module "{rule}" in the network, and none fits it as a pattern. Its weighted layers '
                f"are {callable_blocks}."
            )
        weighted = [name for name in found if name in callable_blocks]
        if not weighted:
            kind = type(modules[found[0]]).__name__
            raise BadLateral(
                f'laterals: "{rule}" is a {kind}, not a weighted layer with one tensor for input: choose among '
                f"{callable_blocks}."
            )
        chosen |= set(weighted)
    if head in chosen:
        if head in rules:
            raise BadLateral(
                f'laterals: "{head}" is the head, whose size changes from task to task, so no earlier column can lead into '
                "it. Leave it out."
            )
        chosen.remove(head)
    return tuple(name for name in callable_blocks if name in chosen)


def _has_weights(module: nn.Module) -> bool:
    """Whether the layer has trainable weights and can be a block."""
    own = any(p.requires_grad for p in module.parameters(recurse=False))
    return own and not isinstance(module, nn.MultiheadAttention) and has_matrix_form(module)


def _unheard(model: nn.Module, name: str) -> bool:
    """Whether a layer is the out-projection of torch's attention, which reads its weights and never calls it."""
    parent = name.rpartition(".")[0]
    return isinstance(model.get_submodule(parent), nn.MultiheadAttention)


def _last_linear(model: nn.Module) -> str:
    names = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    if not names:
        raise BadHead("the network has no linear layer to be the head: name one with head=...")
    return names[-1]


def _check_head(model: nn.Module, head: str) -> None:
    modules = dict(model.named_modules())
    if head not in modules or not head:
        raise BadHead(f'head: there is no module "{head}" in the network: name its last layer.')
    layer = modules[head]
    if not isinstance(layer, nn.Linear | Convolution) or (isinstance(layer, Convolution) and layer.groups > 1):
        raise BadHead(f'head: "{head}" is a {type(layer).__name__}: a linear layer, or a convolution, is needed.')


def _fresh_head(old: nn.Module, outputs: int, seed: int) -> nn.Module:
    """A layer as the old one with another number of outputs, initialised as torch does, from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(old, nn.Linear):
            fresh: nn.Module = nn.Linear(old.in_features, outputs, old.bias is not None)
        else:
            assert isinstance(old, Convolution)
            options = {n: getattr(old, n) for n in ("stride", "padding", "dilation", "padding_mode")}
            fresh = type(old)(old.in_channels, outputs, old.kernel_size, bias=old.bias is not None, **options)  # type: ignore[arg-type]
    like = next(old.parameters())
    return fresh.to(like.device, like.dtype).train(old.training)
