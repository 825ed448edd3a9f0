"""When a certificate would not hold: each reason is looked for before anything is computed."""

from __future__ import annotations

from torch import nn

from posterity.blocks import Block, find_blocks, named
from posterity.curvature.hashes import Hashes, data_fingerprint, overlap
from posterity.errors import BlockMismatch, Overlap, UndeclaredChoice, Unfrozen, UnknownPast
from posterity.gaussian import Gaussian
from posterity.laplace.frozen import frozen_fingerprint


def checked(
    model: nn.Module, posterior: Gaussian, prior: Gaussian, hashes: Hashes, grid: int, trust: bool
) -> tuple[dict[str, Block], tuple[str, ...]]:
    """The network's blocks, and what was looked for; raises what was found."""
    if posterior.blocks != prior.blocks:
        odd = sorted(set(posterior.blocks) ^ set(prior.blocks))
        raise BlockMismatch(f"posterior and prior speak of different blocks ({odd}): both must speak of the same.")
    blocks = find_blocks(model, named(posterior.mean))
    return blocks, (
        _unseen(prior, hashes, trust),
        _nothing_else(model, blocks, prior, trust),
        _choices(prior, hashes, grid),
    )


def _unseen(prior: Gaussian, hashes: Hashes, trust: bool) -> str:
    card = prior.card
    if card.hashes is not None:
        shared = overlap(card.hashes, hashes)
        if shared:
            raise Overlap(
                f"{shared:,} of the {len(hashes):,} examples are among those that the prior was learned from: certify with "
                "others, or split the data first (`split_prior`)."
            )
        return f"none of the {len(hashes):,} examples is among the prior's {len(card.hashes):,}"
    if card.count and not trust:
        raise UnknownPast(
            f"the prior was learned from {card.count:,} examples and its card does not tell which: learn it with "
            "`pt.learn`, or vouch for it with trust_prior=True, which the certificate then says."
        )
    return "the prior's data: vouched for by the user" if card.count else "the prior has seen no data"


def _nothing_else(model: nn.Module, blocks: dict[str, Block], prior: Gaussian, trust: bool) -> str:
    known = {full for block in blocks.values() for full in block.parameters.values()}
    shared = {id(p) for name, p in model.named_parameters() if name in known}
    free = [n for n, p in model.named_parameters() if p.requires_grad and n not in known and id(p) not in shared]
    if free:
        raise Unfrozen(
            f"{', '.join(free[:5])}{' and others' if len(free) > 5 else ''} can be trained and are in no block of the "
            "prior: freeze them at values from before the data was seen (requires_grad_(False)), or give them a prior."
        )
    now = frozen_fingerprint(model, blocks)
    if now != prior.card.frozen:
        if not trust:
            raise Unfrozen(
                "what the network computes with beside its blocks (norm statistics, frozen weights) is not what it was when "
                "the prior was made: put norm layers into evaluation mode and freeze them before training, restore their "
                "values from before the data was seen, or vouch for them with trust_prior=True."
            )
        return "frozen parts: vouched for by the user"
    return (
        "all else in the network is as it was when the prior was made" if now else "nothing but blocks in the network"
    )


def _choices(prior: Gaussian, hashes: Hashes, grid: int) -> str:
    if prior.card.chosen and grid == 1:
        same = "the same" if prior.card.chosen == data_fingerprint(hashes) else "other or overlapping"
        raise UndeclaredChoice(
            f"the prior's strength was chosen with data ({same} as these examples): declare how many priors there were "
            "to choose from, before the data was seen, with grid=K."
        )
    return (
        f"chosen among {grid} priors, which is paid for" if grid > 1 else "the prior was not chosen by these examples"
    )
