"""MAP training: the summed negative log-likelihood plus the quadratic of the prior, in the right units."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from posterity.bars import bar
from posterity.brief import brief
from posterity.checks import admitted
from posterity.curvature import Categorical, GaussianNoise, Likelihood
from posterity.data import Data
from posterity.data.batches import Batch, Workers, check_data
from posterity.data.provenance import Provenance, past_of, sign, together
from posterity.errors import BadData, NotFinite
from posterity.gaussian import Gaussian
from posterity.laplace.averaging import WeightAverage
from posterity.laplace.checkpoint import Checkpoint
from posterity.laplace.polish import polished
from posterity.laplace.prior import PriorPenalty, fitted
from posterity.laplace.run import BatchSource, Epoch, Goal, Objective, Sums, TrainingRun, evaluate, map_objective, split

log = logging.getLogger("posterity")
Augment = Callable[[Tensor], Tensor]
"""New inputs for old, the same number of them: shifted or turned images, say."""
Optimiser = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Start = Literal["prior", "model"]
Schedule = Literal["halving", "one-cycle"]
RISING = 0.3
"""The share of a cycle in which the rate rises."""
STEPS = 1500
"""Steps of the optimiser that training may take at least: epochs of one batch are no measure of effort."""


@dataclass(frozen=True)
class History:
    """What training did, and which epoch's weights the network was left with."""

    __repr__ = brief

    epochs: tuple[Epoch, ...]
    best: int
    seed: int = 0
    """Of the run: with it `split` gives the same two parts of the data again."""
    provenance: Provenance = field(default_factory=Provenance.none, repr=False, compare=False)
    """What the trained weights have seen: the data, what was held out, the prior's past and that of the first weights."""
    likelihood: Likelihood | None = None
    """What was trained with in the end: the noise of a regression may have been learned."""
    slope: float | None = None
    """The norm of the objective's gradient in summed nats, where the last steps were taken on all examples at once."""
    start: Epoch | None = field(default=None, compare=False)
    """The weights that training began with, on the data held out: `best` is −1 where no epoch was better."""

    @property
    def final(self) -> Epoch:
        """The epoch whose weights the network was left with, or the start where none was better."""
        return self.start if self.best < 0 and self.start is not None else self.epochs[self.best]


def one_cycle(done: float) -> float:
    """The rate, as a share of its peak, after a share of all steps: up for three tenths, then down to zero (Smith, 2018)."""
    if done < RISING:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * done / RISING))
    return 0.5 * (1 + math.cos(math.pi * (done - RISING) / (1 - RISING)))


def train(
    model: nn.Module,
    data: Data,
    prior: Gaussian | None = None,
    likelihood: Likelihood | None = None,
    *,
    validation: float | Data | None = 0.1,
    groups: Tensor | None = None,
    epochs: int | None = None,
    batch_size: int = 256,
    lr: float = 5e-4,
    optimiser: Optimiser | None = None,
    schedule: Schedule = "halving",
    halve_after: int = 5,
    stop_after: int = 10,
    clip: float | None = None,
    objective: Objective = map_objective,
    augment: Augment | None = None,
    head_precision: float = 1.0,
    start: Start = "prior",
    polish_steps: int = 0,
    average: int = 0,
    prior_every: int | None = None,
    evaluation_batch_size: int | None = None,
    device: torch.device | str | None = None,
    checkpoint: str | Path | None = None,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> History:
    """Train a network in place to the mode of its posterior, and leave it with its best weights.

    Minimises mean NLL + ½(θ−θ₀)ᵀP(θ−θ₀)/N. The learning rate is halved and training ends when the watched loss stays as it is;
    the best epoch's weights are restored, or the first ones where no epoch did better on the data held out. The noise of
    `GaussianNoise()` is estimated again after every epoch. Under torchrun each process takes its part of every batch and all end
    with the same weights.

    Args:
        model: the network; it is trained.
        data: a pair of tensors, a `Dataset`, a `DataLoader`, or batches as mappings.
        prior: what holds the weights; without one it is maximum likelihood.
        likelihood: of the outputs; `Categorical()` by default.
        validation: a share of the data to hold out, other data, or None (the training objective is watched then).
        groups: which examples belong together (windows of one recording): a share that is held out is one of groups.
        epochs: at most so many; by default at least a hundred, and as many as make 1,500 steps.
        batch_size: of a step; a `DataLoader` brings its own.
        lr: the learning rate to begin with.
        optimiser: makes one from the parameters; Adam by default.
        schedule: "halving", or "one-cycle": the rate rises to `lr` and falls to zero over `epochs`, all of which are run.
        halve_after: epochs without a better loss before the learning rate is halved.
        stop_after: epochs without a better loss before training ends.
        clip: the largest norm of a gradient.
        objective: of NLL, half the quadratic and N; the posterior's by default, a bound to train on it.
        augment: changes the inputs of every training batch. What is held out, hashed or measured stays as it is.
        head_precision: of the isotropic prior of a head that the prior does not have.
        start: "prior" begins at the mean of a learned prior, "model" at the network's weights (as a prior around zero does).
        polish_steps: of L-BFGS on all examples at once, at the end.
        average: over the steps of how many last epochs the weights are averaged. All `epochs` are run then, and the network is
            left with the average instead of the best epoch's weights.
        prior_every: in how many steps each block's product with the prior's precision is taken once; between, it is moved along
            by the diagonal, and the mode is reached more slowly. None takes 1, or 8 where blocks are as large as ResNet-50's.
        evaluation_batch_size: of the data held out; by default four times `batch_size`, 1,024 at most.
        device: to train on; the model's own by default.
        checkpoint: a file that every epoch is saved to. A run that finds it goes on from there, to the same bits.
        generator: of the order of the examples and what is held out.
        progress: whether to show a bar.
    Returns:
        A `History`: every epoch, the best one, and what was seen.
    Raises:
        BadCheckpoint: if the file is not one of this training.
        NotFinite: if the loss diverges.

    Example:
        >>> history = pt.train(model, (x, y), pt.isotropic(model, 10.0), lr=1e-3)
        >>> history.final.validation_nll
    """
    data, _ = admitted(model, data, likelihood)
    if not isinstance(validation, float | int | None):
        validation, _ = admitted(model, validation, likelihood)
    likelihood = likelihood or Categorical()
    if start not in ("prior", "model"):
        raise ValueError(f'start is "prior" or "model", not "{start}"')
    check_data(data)
    workers = Workers.here()
    state = TrainingRun(workers) if checkpoint is None else Checkpoint(checkpoint, workers)
    shuffle = torch.Generator().manual_seed(state.take_seed(generator))
    if device is not None:
        model.to(device)
    agree(model, workers)
    where = next(model.parameters()).device
    training, held_out = split(data, validation, shuffle, groups)
    source = BatchSource(training, batch_size, shuffle)
    held = None if held_out is None else BatchSource(held_out, evaluation_batch_size or min(1024, 4 * batch_size), None)
    if prior is not None:
        prior = fitted(prior, model, head_precision)
        # A prior around zero says nothing of where to start.
        if start == "prior" and any(bool(mean.any()) for mean in prior.mean.values()):
            prior.write_to(model, frozen=False)
            log.info("training starts at the prior's mean")
    # An optimiser of the user's own may search along a line: it gets exact forces, unless stated otherwise.
    refresh = prior_every or (1 if optimiser else None)
    penalty = None if prior is None else PriorPenalty(prior, model, refresh)
    averaged = WeightAverage(model, average, epochs) if average else None
    batches = max(1, -(-source.count // batch_size))
    if epochs is None:
        epochs = epochs_for(batches)
        halve_after, stop_after = patience(halve_after, batches), patience(stop_after, batches)
    cycle = schedule == "one-cycle"
    if average or cycle:
        stop_after = max(stop_after, epochs)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optim = optimiser(parameters) if optimiser else torch.optim.Adam(parameters, lr=lr)
    goal = Goal(model, parameters, likelihood, penalty, objective, source, workers, clip)
    examples_seen = together(
        Provenance.of(part)
        for part in (data, None if isinstance(validation, float | int) else held_out)
        if part is not None
    )
    past = past_of(model) if prior is None else past_of(model, prior.mean, prior.provenance).joined(prior.provenance)
    seen = examples_seen.joined(past)
    state.start(model)
    if isinstance(state, Checkpoint):
        settings = {
            "the number of examples": source.count,
            "the number held out": 0 if held is None else held.count,
            "batch_size": batch_size,
            "the likelihood": repr(likelihood),
            "the prior": "none" if penalty is None else penalty.fingerprint(),
            "the optimiser": f"{type(optim).__name__}, lr {optim.param_groups[0]['lr']:g}",
            "clip": clip,
            "halve_after": halve_after,
            "stop_after": stop_after,
        }
        settings |= {"average": average, "epochs": epochs} if average else {}
        settings |= {"schedule": schedule, "epochs": epochs} if cycle else {}
        settings["the data"] = examples_seen.fingerprint if examples_seen.is_known else "not the same each time"
        state.resume(optim, [shuffle, *source.generators], settings, penalty, averaged)
    learned_noise = isinstance(likelihood, GaussianNoise) and likelihood.is_learned
    if held is not None and epochs and not state.epochs and not learned_noise:
        first_nll, first_accuracy = evaluate(model, held, likelihood)
        if math.isfinite(first_nll):
            rate = optim.param_groups[0]["lr"]
            state.begin(Epoch(math.nan, math.nan, math.nan, first_nll, first_accuracy, rate), first_nll)
    if learned_noise and state.epochs:
        goal.likelihood = GaussianNoise(state.epochs[-1].noise)
    modes = {module: module.training for module in model.modules()}
    bars = bar()
    bars.disable = not progress
    try:
        # In a network in training mode, layers put into evaluation mode (frozen statistics, say) stay so.
        if not model.training:
            model.train()
        with bars:
            task = bars.add_task("training", total=epochs, completed=len(state.epochs))
            while len(state.epochs) < epochs and state.stale < stop_after:
                sums = Sums()
                for number, batch in enumerate(source.epoch(len(state.epochs))):
                    if cycle:
                        rate = lr * one_cycle((len(state.epochs) + min(number / batches, 1.0)) / epochs)
                        for group in optim.param_groups:
                            group["lr"] = rate
                    if augment is not None:
                        batch = _augmented(batch, augment)
                    goal.take(batch, where)
                    optim.step(goal)
                    if averaged is not None:
                        averaged.step(len(state.epochs))
                    sums.add(goal.count, *goal.seen[0])
                if not sums.count:
                    raise BadData(
                        f"there was no batch in epoch {len(state.epochs)}: the data is used up after one reading. Give a "
                        "DataLoader, a Dataset or a list."
                    )
                share_statistics(model, workers)
                noise = None
                if isinstance(goal.likelihood, GaussianNoise) and learned_noise:
                    goal.likelihood = goal.likelihood.refitted(sums.means[1], goal.outputs)
                    noise = goal.likelihood.value
                held_nll, held_accuracy = (
                    (math.nan, math.nan) if held is None else evaluate(model, held, goal.likelihood)
                )
                watched = sums.means[0] if held is None else held_nll
                if not math.isfinite(watched):
                    named = (batch.not_finite("held-out batch") for batch in held or ())
                    raise NotFinite(
                        next(filter(None, named), None)
                        or f"the held-out loss after epoch {len(state.epochs)} is {watched}: lower lr, or clip."
                    )
                rate = optim.param_groups[0]["lr"]
                state.note(Epoch(*sums.means, held_nll, held_accuracy, rate, noise), watched)
                if not cycle and state.stale and state.stale % halve_after == 0:
                    for group in optim.param_groups:
                        group["lr"] /= 2
                state.save()
                bars.update(task, completed=len(state.epochs), description=f"training  {_line(state.epochs[-1])}")
        state.restore_best()
        if averaged is not None and averaged.count:
            averaged.write()
            state.note(_judged(model, goal, source, held, objective), -math.inf)
        slope_left = None
        if polish_steps:
            last, slope_left = polished(model, goal, source, where, polish_steps)
            state.note(last, -math.inf)
    finally:
        for module, mode in modes.items():
            module.training = mode
        # Also after an error: weights that were trained for a while have seen the data.
        sign(model, seen)
    return History(tuple(state.epochs), state.best, state.seed, seen, goal.likelihood, slope_left, state.first)


def _judged(model: nn.Module, goal: Goal, source: BatchSource, held: BatchSource | None, objective: Objective) -> Epoch:
    """The network as it stands, as a line of the history."""
    nll, accuracy = evaluate(model, source, goal.likelihood)
    half = torch.tensor(0.0 if goal.penalty is None else goal.penalty.forces(True)[1])
    held_nll, held_accuracy = (math.nan, math.nan) if held is None else evaluate(model, held, goal.likelihood)
    total = float(objective(torch.tensor(nll), half, source.count))
    return Epoch(total, nll, accuracy, held_nll, held_accuracy, 0.0)


def _augmented(batch: Batch, augment: Augment) -> Batch:
    if not batch.positional or not isinstance(batch.positional[0], Tensor):
        raise BadData(
            "augment takes a tensor, and this batch has its inputs by name: augment in the data loader instead."
        )
    first, *rest = batch.positional
    changed = augment(first)
    if len(changed) != batch.count:
        raise BadData(f"augment made {len(changed)} inputs of {batch.count}: there must be as many as before.")
    return replace(batch, positional=(changed, *rest))


@torch.no_grad()
def agree(model: nn.Module, workers: Workers) -> None:
    """The first worker's weights and statistics, on all."""
    if workers.size > 1:
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.copy_(workers.gather(tensor.detach())[0])


@torch.no_grad()
def share_statistics(model: nn.Module, workers: Workers) -> None:
    """Running statistics, each worker's from its own part, become their average."""
    if workers.size > 1:
        for tensor in model.buffers():
            if tensor.is_floating_point():
                tensor.copy_(workers.sum(tensor) / workers.size)


def _line(epoch: Epoch) -> str:
    held = (
        ""
        if math.isnan(epoch.validation_nll)
        else f"  held out {epoch.validation_nll:.4f}/{epoch.validation_accuracy:.3f}"
    )
    return f"nll {epoch.nll:.4f}  acc {epoch.accuracy:.3f}{held}"


def epochs_for(batches: int) -> int:
    """At least a hundred epochs, and enough for `STEPS` steps."""
    return max(100, math.ceil(STEPS / max(1, batches)))


def patience(epochs: int, batches: int) -> int:
    """A number of epochs without progress, for epochs of few batches: at least ten times as many steps."""
    return max(epochs, math.ceil(10 * epochs / max(1, batches)))
