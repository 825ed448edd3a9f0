"""Trained networks beside the posterior: each leaves a part of the examples out, and what it says of them is an honest score.

A posterior around the prior's mean sees the network as linear. Where lower layers have to change a lot, training does better, and
nobody can tell in advance: so both are there, and examples that were left out decide how much each counts.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from posterity.bars import track
from posterity.blocks import evaluating, find_blocks, named, read_blocks
from posterity.curvature import Likelihood
from posterity.curvature.batches import Batch
from posterity.errors import NotFinite
from posterity.gaussian import Gaussian
from posterity.kernel import Calibration, LeftOut, Link, Networks, calibrate, folds_of, outputs_at
from posterity.kernel.choose import HALVES
from posterity.laplace.objective import PriorPenalty
from posterity.workflow.few import Examples

STEPS, LR, DROPPED = 100, 2e-3, 0.5
"""Of Adam on all examples at once, with dropout in front of linear layers: without it a hundred examples are soon overfitted."""


def trained_networks(
    model: nn.Module,
    prior: Gaussian,
    examples: Examples,
    likelihood: Likelihood,
    groups: Tensor | None = None,
    link: Link = "probit",
    progress: bool = True,
) -> Networks | None:
    """Networks trained from the prior's mean: one on all examples, and one without each fold; None if training diverges.

    What was left out scores them and chooses their temperature. The first has seen more and has no score of its own: it counts as
    much as the others together.
    """
    whole, targets = Batch.joined(examples.inputs), examples.targets
    folds = folds_of(targets, groups).to(targets.device)
    parts = folds.unique().tolist()
    outputs = torch.empty(len(targets), examples.outputs, dtype=torch.float64, device=targets.device)
    networks = []
    try:
        with evaluating(model):
            for fold in track([None, *parts], len(parts) + 1, "networks", progress):
                if fold is None:
                    networks.append((0.5, _train(model, prior, whole, likelihood)))
                    continue
                kept, out = (folds != fold).nonzero().flatten(), (folds == fold).nonzero().flatten()
                networks.append((0.5 / len(parts), _train(model, prior, whole.rows(kept), likelihood)))
                outputs[out] = outputs_at(model, networks[-1][1], whole.rows(out)).double()
    except NotFinite:
        return None
    certain = outputs.new_zeros(*outputs.shape, outputs.shape[1])
    left_out = LeftOut(outputs, certain)
    calibration, nll, _ = calibrate(left_out, likelihood, targets, link, taus=(0.0,))
    log_probs = left_out.log_probs(likelihood, targets, calibration, link)
    # Networks that are averaged, and one that has seen all examples, are softer than any that was scored.
    count = len(targets) if groups is None else len(groups.unique())
    shrunk = calibration.temperature ** (count / (count + HALVES))
    return Networks(1.0, tuple(networks), Calibration(0.0, shrunk), nll, log_probs)


def _train(model: nn.Module, prior: Gaussian, batch: Batch, likelihood: Likelihood) -> dict[str, Tensor]:
    """Adam from the prior's mean with dropout, statistics of norm layers frozen; the same draws every time."""
    twin = copy.deepcopy(model).eval()
    prior.write_to(twin)
    generator = torch.Generator().manual_seed(0)

    def drop(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        kept = torch.rand(inputs[0].shape, generator=generator).to(inputs[0]) >= DROPPED
        return inputs[0] * kept / (1 - DROPPED), *inputs[1:]

    for module in twin.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(drop)
    blocks = find_blocks(twin, named(prior.mean))
    inside = {full for block in blocks.values() for full in block.parameters.values()}
    for name, p in twin.named_parameters():
        p.requires_grad_(name in inside)
    penalty = PriorPenalty(prior, twin)
    parameters = [p for p in twin.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, LR)
    with torch.enable_grad():
        for _ in range(STEPS):
            optimiser.zero_grad()
            outputs, targets = likelihood.check(batch.outputs(twin), batch.targets)
            loss = (likelihood.nll(outputs, targets) + penalty()) / batch.count
            if not bool(torch.isfinite(loss)):
                raise NotFinite("the loss of a network diverges.")
            loss.backward()
            optimiser.step()
    return {name: matrix.detach() for name, matrix in read_blocks(twin, blocks).items()}
