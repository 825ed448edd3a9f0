"""Networks as plain training leaves them: one that saw all examples, and one without each fold.

How sure trained networks may be cannot be known in advance. What each left out scores them, and chooses their temperature.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from posterity.bars import track
from posterity.blocks import evaluating, find_blocks, named, read_blocks, write_blocks
from posterity.blocks.replicas import copied
from posterity.curvature import Likelihood
from posterity.data.batches import Batch
from posterity.data.provenance import past_of, sign, together
from posterity.errors import NotFinite
from posterity.gaussian import Gaussian
from posterity.kernel import Calibration, LeaveOneOut, outputs_at
from posterity.kernel.stacking import temperature
from posterity.laplace.prior import PriorPenalty
from posterity.memory import require_memory
from posterity.novelty import Reference, of_folds
from posterity.predictive.exact import AveragedNetworks, ExactLinear
from posterity.workflow.problem import Problem
from posterity.workflow.recipe import Training
from posterity.workflow.ways.around_prior import at_strength, best_strength
from posterity.workflow.ways.candidate import Candidate, Options


def from_prior(problem: Problem, options: Options, exact: Candidate) -> Candidate:
    """Networks trained from the prior's mean, held by the prior as strongly as the best exact posterior is."""
    prior = at_strength(problem, cast(ExactLinear, exact.predictor), best_strength(cast(ExactLinear, exact.predictor)))
    predictor, probs = averaged(problem, prior, options.recipe.from_prior, options)
    _write(problem, predictor)
    sign(problem.model, exact.prior.provenance.joined(problem.seen))
    return Candidate(exact.prior, problem.likelihood, predictor, probs, reference=_reference(problem, predictor))


def networks_from_scratch(problem: Problem, options: Options) -> Candidate:
    """Networks trained from the network's own weights, under the default prior."""
    assert problem.examples is not None
    seed = int(torch.randint(2**31, (), generator=options.generator))
    predictor, probs = averaged(
        problem, problem.prior, options.recipe.from_scratch.training(problem.examples.count), options, seed
    )
    started = past_of(problem.model)
    _write(problem, predictor)
    sign(problem.model, together([started, problem.prior.provenance, problem.seen]))
    reference = _reference(problem, predictor)
    return Candidate(problem.prior, problem.likelihood, predictor, probs, reference=reference)


def _reference(problem: Problem, predictor: AveragedNetworks) -> Reference | None:
    assert problem.examples is not None
    networks = [weights for _, weights in predictor.networks]
    return of_folds(problem.model, networks, problem.examples.whole, problem.leave_out, problem.likelihood)


def _write(problem: Problem, predictor: AveragedNetworks) -> None:
    """The network that saw all examples becomes the user's."""
    _, weights = predictor.networks[0]
    problem.model.load_state_dict(write_blocks(find_blocks(problem.model, named(weights)), weights), strict=False)


def averaged(
    problem: Problem, prior: Gaussian, recipe: Training, options: Options, seed: int = 0
) -> tuple[AveragedNetworks, Tensor]:
    """Networks trained under the prior, and the probabilities that they gave to left-out targets.

    One learns from all examples, and one without each fold. What was left out scores them and chooses their temperature. The
    first has seen more and has no score of its own: it counts as much as the others together. With one example a class nothing
    can be left out: it is alone, after a prior as sure as it is, else with a temperature set in advance.

    Raises:
        NotFinite: if training diverges.
    """
    model, likelihood, examples, leave_out = problem.model, problem.likelihood, problem.examples, problem.leave_out
    assert examples is not None
    require_memory(
        24 * len(leave_out.judged) * examples.outputs**2,
        f"judging networks by {len(leave_out.judged):,} left-out examples with {examples.outputs:,} outputs",
        'Give pt.learn method="one network", or fit the last layer of a trained network, pt.posterior(blocks=[its name]).',
    )
    whole, targets, parts = examples.whole, examples.targets, leave_out.parts
    outputs = torch.empty(len(targets), examples.outputs, dtype=torch.float64, device=targets.device)
    blocks, networks = find_blocks(model, named(prior.mean)), []
    with evaluating(model):
        for number, fold in enumerate(track([None, *parts], len(parts) + 1, "networks", options.progress)):
            # From scratch, networks that see other batches differ by more than their folds, and average better.
            own = seed + number if recipe.from_scratch else seed
            if fold is None:
                share = 0.5 if parts else 1.0
                networks.append((share, trained_under(model, prior, whole, likelihood, recipe, own)))
                continue
            kept, out = leave_out.split(fold)
            networks.append((0.5 / len(parts), trained_under(model, prior, whole.rows(kept), likelihood, recipe, own)))
            outputs[out] = outputs_at(model, blocks, networks[-1][1], whole.rows(out)).double()
    if not parts:
        unjudged = Calibration(0.0, recipe.unjudged)
        return AveragedNetworks(tuple(networks), unjudged, likelihood, options.link), outputs.new_zeros(0)
    outputs, targets = outputs[leave_out.judged], targets[leave_out.judged]
    left_out = LeaveOneOut(outputs, outputs.new_zeros(*outputs.shape, outputs.shape[1]))
    soft = temperature(
        outputs, likelihood, targets, None if leave_out.each is None else leave_out.each[leave_out.judged]
    )
    log_probs = left_out.log_probs(likelihood, targets, Calibration(0.0, soft), options.link)
    # An average is softer than the single networks that were scored.
    calibration = Calibration(0.0, soft**recipe.softened)
    found = AveragedNetworks(tuple(networks), calibration, likelihood, options.link)
    return found, log_probs.double().exp()


def trained_under(
    model: nn.Module, prior: Gaussian, batch: Batch, likelihood: Likelihood, recipe: Training, seed: int
) -> dict[str, Tensor]:
    """One network; the same draws for the same seed."""
    twin = copied(model)
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


def _drop(twin: nn.Module, recipe: Training, generator: torch.Generator) -> None:
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
