"""Networks as plain training leaves them: one that saw all examples, and one without each fold.

Nobody can tell in advance how sure trained networks may be. What each left out scores them, and chooses their temperature.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

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
from posterity.kernel.folds import judged
from posterity.kernel.kernels import Examples
from posterity.laplace.prior import PriorPenalty

WEIGHTS, EXAMPLES = 1_000_000, 5_000
"""The most for which six trainings from scratch are cheap."""
SMALL, MOST = 20_000, 50_000
"""The same for small networks."""


@dataclass(frozen=True)
class Recipe:
    """How each network is trained, by Adam."""

    steps: int
    lr: float
    dropped: float
    """The share of inputs of linear layers that a step leaves out: few examples are soon overfitted without it."""
    batch_size: int | None = None
    """Of a step; None takes all examples at once."""
    from_scratch: bool = False
    """Whether it starts at its own weights, in training mode, with a rate that rises to `lr` and falls to zero. Else it starts at
    the prior's mean, with the statistics of norm layers as they are."""
    softened: float = 1.0
    """The power of the temperature that is used. An average is softer than any network that was scored."""


FROM_PRIOR = Recipe(100, 2e-3, 0.5)


STEPS, PEAK = 400, 3e-3
"""Of a network that is trained from scratch on up to 1,000 examples."""
UNJUDGED = 2.0
"""The temperature of a network that was trained from scratch on one example a class: as it is, it is sure of everything."""
LEAST = 0.44
"""Of these steps for each thousand examples, where they are many."""


def from_scratch(count: int) -> Recipe:
    """More examples get more steps and fewer epochs, down to some twenty."""
    thousands = max(1.0, count / 1000)
    steps = STEPS * max(thousands**0.5, LEAST * thousands)
    return Recipe(round(steps), PEAK, 0.2, 128, from_scratch=True, softened=0.5)


def suits(model: nn.Module, prior: Gaussian, weights: int = WEIGHTS) -> bool:
    """Whether the network is small, and nothing but the weights of its blocks would have to be trained."""
    if sum(p.numel() for p in model.parameters()) > weights:
        return False
    blocks = find_blocks(model, named(prior.mean))
    inside = {full for block in blocks.values() for full in block.parameters.values()}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return trained <= inside and not any(getattr(module, "track_running_stats", False) for module in model.modules())


def trained_networks(
    model: nn.Module,
    prior: Gaussian,
    examples: Examples,
    likelihood: Likelihood,
    recipe: Recipe,
    groups: Tensor | None = None,
    link: Link = "probit",
    seed: int = 0,
    progress: bool = True,
) -> Networks | None:
    """Networks trained under the prior: one on all examples, and one without each fold; None if training diverges.

    What was left out scores them and chooses their temperature. The first has seen more and has no score of its own: it counts as
    much as the others together. With one example a class nothing can be left out: it is alone, after a prior as sure as it is,
    else with a temperature set in advance.
    """
    whole, targets = Batch.joined(examples.inputs), examples.targets
    folds = folds_of(targets, groups).to(targets.device)
    seen, groups = judged(folds, groups)
    parts = folds[seen].unique().tolist()
    outputs = torch.empty(len(targets), examples.outputs, dtype=torch.float64, device=targets.device)
    networks = []
    try:
        with evaluating(model):
            for number, fold in enumerate(track([None, *parts], len(parts) + 1, "networks", progress)):
                # From scratch, networks that see other batches differ by more than their folds, and average better.
                own = seed + number if recipe.from_scratch else seed
                if fold is None:
                    share = 0.5 if parts else 1.0
                    networks.append((share, _train(model, prior, whole, likelihood, recipe, own)))
                    continue
                kept, out = (folds != fold).nonzero().flatten(), (folds == fold).nonzero().flatten()
                networks.append((0.5 / len(parts), _train(model, prior, whole.rows(kept), likelihood, recipe, own)))
                outputs[out] = outputs_at(model, networks[-1][1], whole.rows(out)).double()
    except NotFinite:
        return None
    if not parts:
        unjudged = Calibration(0.0, UNJUDGED if recipe.from_scratch else 1.0)
        return Networks(1.0, tuple(networks), unjudged, math.nan, outputs.new_zeros(0))
    outputs, targets = outputs[seen], targets[seen]
    left_out = LeftOut(outputs, outputs.new_zeros(*outputs.shape, outputs.shape[1]))
    calibration, nll, _ = calibrate(left_out, likelihood, targets, link, taus=(0.0,))
    log_probs = left_out.log_probs(likelihood, targets, calibration, link)
    # Networks that are averaged, and one that has seen all examples, are softer than any that was scored.
    count = len(targets) if groups is None else len(groups.unique())
    shrunk = calibration.temperature ** (recipe.softened * count / (count + HALVES))
    return Networks(1.0, tuple(networks), Calibration(0.0, shrunk), nll, log_probs)


def _train(
    model: nn.Module, prior: Gaussian, batch: Batch, likelihood: Likelihood, recipe: Recipe, seed: int
) -> dict[str, Tensor]:
    """One network; the same draws for the same seed."""
    twin = copy.deepcopy(model)
    if not recipe.from_scratch:
        prior.write_to(twin)
    blocks = find_blocks(twin, named(prior.mean))
    generator = torch.Generator().manual_seed(seed)
    _drop(twin, recipe, generator)
    inside = {full for block in blocks.values() for full in block.parameters.values()}
    for name, p in twin.named_parameters():
        p.requires_grad_(name in inside)
    penalty = PriorPenalty(prior, twin)
    parameters = [p for p in twin.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, recipe.lr)
    cycle = None
    if recipe.from_scratch:
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.lr, total_steps=recipe.steps)
    count = recipe.batch_size or batch.count
    with torch.enable_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)  # of dropout layers that the network has itself
        for _ in range(recipe.steps):
            part = (
                batch if count >= batch.count else batch.rows(torch.randint(batch.count, (count,), generator=generator))
            )
            optimiser.zero_grad()
            outputs, targets = likelihood.check(part.outputs(twin), part.targets)
            loss = likelihood.nll(outputs, targets) / part.count + penalty() / batch.count
            if not bool(torch.isfinite(loss)):
                raise NotFinite("the loss of a network diverges.")
            loss.backward()
            optimiser.step()
            if cycle is not None:
                cycle.step()
    return {name: matrix.detach() for name, matrix in read_blocks(twin, blocks).items()}


def _drop(twin: nn.Module, recipe: Recipe, generator: torch.Generator) -> None:
    """Dropout in front of linear layers, where the network has none of its own to train with."""

    def drop(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        kept = torch.rand(inputs[0].shape, generator=generator).to(inputs[0]) >= recipe.dropped
        return inputs[0] * kept / (1 - recipe.dropped), *inputs[1:]

    layers = [module for module in twin.modules() if next(module.parameters(recurse=False), None) is not None]
    if recipe.from_scratch:
        twin.train()
        if any(isinstance(module, nn.Dropout) for module in twin.modules()):
            return
        # What the first layer reads is the inputs themselves, and there may be four of them.
        layers = layers[1:]
    for module in layers:
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(drop)
