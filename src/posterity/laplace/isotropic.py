"""The prior before any prior: the same precision for every weight, and its fit to a network."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from posterity.algebra import scaled_identity
from posterity.blocks import Block, Selection, find_blocks, named, read_blocks
from posterity.curvature.hashes import fingerprint
from posterity.curvature.provenance import Provenance, past_of
from posterity.errors import BlockMismatch, NoBlocks
from posterity.gaussian import Card, Gaussian
from posterity.gaussian.gaussian import with_frozen

log = logging.getLogger("posterity")


def isotropic(
    model: nn.Module,
    precision: float = 1.0,
    mean: Literal["zero", "model"] | Mapping[str, Tensor] = "zero",
    *,
    blocks: Selection = None,
    vouched: str | None = None,
) -> Gaussian:
    """N(mean, I/precision) over a network's blocks.

    Weights and matrices have an unknown past, unless `pt.train` left them: a certificate would refuse such a prior. The same
    goes for frozen layers that were trained.

    Args:
        model: the network; it is only looked at.
        precision: multiplies ½‖θ − mean‖² next to the *summed* negative log-likelihood. A PyTorch weight decay λ on a mean
            loss over N examples is precision = λ·N.
        mean: "zero" (and zero means zero), "model" for its present weights, or a matrix for each block.
        blocks: which layers, by name, type or predicate; all of them by default.
        vouched: where weights or matrices of unknown past come from ("initialised at random"); certificates repeat it.
    Returns:
        A `Gaussian` over the network's blocks.
    Raises:
        UnsupportedLayer: if a trainable layer has no matrix form and `blocks` does not leave it out.

    Example:
        >>> prior = pt.isotropic(model, precision=10.0)
        >>> pt.train(model, data, prior)
    """
    if not precision > 0:
        raise ValueError(f"a prior precision is positive, not {precision}")
    found = find_blocks(model, blocks)
    present = {name: matrix.clone() for name, matrix in read_blocks(model, found).items()}
    match mean:
        case "zero":
            centre = {name: torch.zeros_like(matrix) for name, matrix in present.items()}
        case "model":
            centre = present
        case _:
            if isinstance(mean, str):
                raise ValueError(f'mean is "zero", "model" or a mapping of matrices, not "{mean}"')
            if missing := set(present) - set(mean):
                raise BlockMismatch(f"the mean has no matrix for the blocks {sorted(missing)}.")
            centre = {name: mean[name].detach().clone() for name in present}
    identities = {name: scaled_identity(precision, block.shape) for name, block in found.items()}
    provenance = past_of(model, centre, beside=True)
    if mean == "model":
        provenance = past_of(model, strict=True)
    elif not isinstance(mean, str):
        provenance = provenance.joined(_of_matrices(centre))
    card = Card(
        precision=precision,
        architecture=architecture(found),
        provenance=provenance if vouched is None else provenance.vouched(vouched),
    )
    return with_frozen(Gaussian(centre, identities, card).with_provenance(card.provenance), model)


def _of_matrices(mean: Mapping[str, Tensor]) -> Provenance:
    """Matrices come from somewhere, if they are not zero."""
    if any(bool(matrix.any()) for matrix in mean.values()):
        return Provenance.unknown("the matrices given as its mean come from somewhere")
    return Provenance.none()


def fitted(prior: Gaussian, model: nn.Module, head_precision: float = 1.0, *, new_head: bool | None = None) -> Gaussian:
    """The prior as this network needs it: blocks in the network's order, and a new head where the head has another size.

    The last block may differ in its number of outputs: it has no counterpart in the prior and gets an isotropic one around
    zero, which is said in the log. `new_head=True` gives it that in any case, `False` never. Any other difference is a
    `BlockMismatch`.
    """
    names = {name for name, _ in model.named_modules()}
    head = head_name(model)
    known_names = [name for name in prior.blocks if name in names or name.rpartition(".")[0] in names]
    try:
        found = find_blocks(model, named([*known_names, *([head] if head else [])]))
    except NoBlocks:
        found = {}
    mean, precision = {}, {}
    for name, block in found.items():
        known = prior.precision[name].shape if name in prior.mean else None
        if known == block.shape and not (new_head and name == head):
            mean[name], precision[name] = prior.mean[name], prior.precision[name]
        elif name == head and new_head is not False and (known is None or known[1] == block.shape[1]):
            log.info('block "%s" is a new head: isotropic prior around zero, precision %g', name, head_precision)
            mean[name] = torch.zeros(block.shape, dtype=next(model.parameters()).dtype)
            precision[name] = scaled_identity(head_precision, block.shape)
        else:
            raise BlockMismatch(mismatch(name, block, known))
    if extra := [name for name in prior.blocks if name not in found]:
        raise BlockMismatch(
            f"the prior has blocks {extra} that the model has not (its blocks are {list(found)}): "
            f"drop them with prior.without({', '.join(map(repr, extra))})."
        )
    return replace(prior, mean=mean, precision=precision).with_provenance(prior.provenance)


def head_name(model: nn.Module) -> str | None:
    """The last linear layer: what a new task replaces."""
    linear = [
        name for name, module in model.named_modules() if type(module) is nn.Linear and module.weight.requires_grad
    ]
    return linear[-1] if linear else None


def mismatch(name: str, block: Block, known: tuple[int, int] | None) -> str:
    """How a model's block differs from the prior's, and what to do about it: the text of an error."""
    if known is None:
        return f'block "{name}" of the model has no counterpart in the prior: refit the prior on this architecture.'
    text = f'block "{name}" is {known[0]}×{known[1]} in the prior and {block.shape[0]}×{block.shape[1]} in the model'
    if known[0] == block.shape[0] and known[1] == block.shape[1] + 1:
        text += ": the model's layer has no bias"
    return f'{text}. Refit the prior, or drop the block with prior.without("{name}").'


def architecture(blocks: Mapping[str, Block]) -> str:
    """A fingerprint of block names and shapes."""
    text = ";".join(f"{name}:{block.shape[0]}x{block.shape[1]}" for name, block in blocks.items())
    return fingerprint([text], digits=16)
