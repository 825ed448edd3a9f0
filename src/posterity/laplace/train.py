"""MAP training: the summed negative log-likelihood plus the quadratic of the prior, in the right units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from posterity.bars import bar
from posterity.blocks import find_blocks
from posterity.curvature import Categorical, Data, Likelihood
from posterity.curvature.batches import Batch, check_data
from posterity.curvature.workers import Workers
from posterity.errors import BadData, NoData, NotFinite
from posterity.gaussian import Gaussian
from posterity.laplace.checkpoint import Checkpoint
from posterity.laplace.isotropic import fitted

Objective = Callable[[Tensor, Tensor, int], Tensor]
"""(mean NLL, ½ quadratic of the prior, N) → what is minimised."""

Optimiser = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Epoch:
    """One line of the training history. Losses are mean nats an example."""

    objective: float
    nll: float
    accuracy: float
    validation_nll: float
    validation_accuracy: float
    lr: float


@dataclass(frozen=True)
class History:
    """What training did, and which epoch's weights the network was left with."""

    epochs: tuple[Epoch, ...]
    best: int

    @property
    def final(self) -> Epoch:
        return self.epochs[self.best]


def map_objective(nll: Tensor, half_quadratic: Tensor, count: int) -> Tensor:
    """−ln posterior, divided by N: the prior counts once per data set, not once per batch."""
    return nll + half_quadratic / count


def train(
    model: nn.Module,
    data: Data,
    prior: Gaussian | None = None,
    likelihood: Likelihood | None = None,
    *,
    validation: float | Data | None = 0.1,
    epochs: int = 100,
    batch_size: int = 256,
    lr: float = 5e-4,
    optimiser: Optimiser | None = None,
    halve_after: int = 5,
    stop_after: int = 10,
    clip: float | None = None,
    objective: Objective = map_objective,
    head_precision: float = 1.0,
    device: torch.device | str | None = None,
    checkpoint: str | Path | None = None,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> History:
    """Train a network in place to the mode of its posterior, and leave it with its best weights.

    Minimises mean NLL + ½(θ−θ₀)ᵀP(θ−θ₀)/N by Adam (or `optimiser(parameters)`). The learning rate is halved after
    `halve_after` epochs without a better validation loss, training ends after `stop_after`, and the best epoch's weights are
    restored. `validation` is a share of the data to hold out, other data, or None (the training objective is watched then).
    With `checkpoint`, every epoch is saved to that file; a run that finds it goes on from there, to the same bits.
    Under torchrun each process takes its part of every batch and all end with the same weights.
    """
    likelihood = likelihood or Categorical()
    check_data(data)
    workers = Workers.here()
    seed = int(torch.randint(2**62, (), generator=generator))
    shuffle = torch.Generator().manual_seed(int(workers.first(seed)))
    if device is not None:
        model.to(device)
    where = next(model.parameters())
    training, held_out = split(data, validation, shuffle)
    source = _Source(training, batch_size, shuffle)
    held = None if held_out is None else _Source(held_out, 1024, None)
    pull = None if prior is None else Pull(fitted(prior, model, head_precision), model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optim = optimiser(parameters) if optimiser else torch.optim.Adam(parameters, lr=lr)
    state = Checkpoint(checkpoint, model, optim, shuffle)
    state.resume()
    mode = model.training
    with bar() as bars:
        bars.disable = not progress
        task = bars.add_task("training", total=epochs, completed=len(state.epochs))
        while len(state.epochs) < epochs and state.stale < stop_after:
            model.train()
            sums = _Sums()
            for index, batch in enumerate(source):
                share = batch.part(workers.rank, workers.size).to(where.device)
                optim.zero_grad(set_to_none=True)
                outputs, targets = likelihood.check(share.outputs(model), share.targets)
                # Parts of a batch add up to its mean, and the prior to itself, over all workers.
                nll = likelihood.nll(outputs, targets) / batch.count
                half = torch.zeros((), device=where.device) if pull is None else pull()
                loss = objective(nll, half / workers.size, source.count)
                value = loss.item()
                if not math.isfinite(value):
                    raise NotFinite(
                        f"the loss of batch {index} in epoch {len(state.epochs)} is {value}: lower lr, or clip."
                    )
                loss.backward()
                for p in parameters:
                    if p.grad is not None:
                        p.grad = workers.sum(p.grad)
                if clip is not None:
                    nn.utils.clip_grad_norm_(parameters, clip)
                optim.step()
                sums.add(batch.count, value, nll.item(), _right(outputs, targets))
            held_nll, held_accuracy = (math.nan, math.nan) if held is None else evaluate(model, held, likelihood)
            watched = sums.objective if held is None else held_nll
            rate = optim.param_groups[0]["lr"]
            state.note(Epoch(sums.objective, sums.nll, sums.accuracy, held_nll, held_accuracy, rate), watched)
            if state.stale and state.stale % halve_after == 0:
                for group in optim.param_groups:
                    group["lr"] /= 2
            state.save()
            bars.update(task, completed=len(state.epochs), description=f"training  {_line(state.epochs[-1])}")
    state.restore_best()
    model.train(mode)
    return History(tuple(state.epochs), state.best)


class Pull:
    """½(θ−θ₀)ᵀP(θ−θ₀) of a network's present weights, with its gradient, at the price of one product a block."""

    def __init__(self, prior: Gaussian, model: nn.Module) -> None:
        like = next(model.parameters())
        self.prior = prior.to(like.device, like.dtype)
        self.blocks = find_blocks(model, lambda name, module: name in prior.mean)
        self.parameters = dict(model.named_parameters(remove_duplicate=False))

    def __call__(self) -> Tensor:
        terms = []
        for name, block in self.blocks.items():
            own = {role: self.parameters[full] for role, full in block.parameters.items()}
            shift = block.layer.read(own) - self.prior.mean[name]
            # The gradient of ½<D, PD> is PD: hand it over instead of letting autograd go through P again.
            force = self.prior.precision[name].matmul(shift.detach())
            terms.append((shift * force).sum() - 0.5 * (shift.detach() * force).sum())
        return torch.stack(terms).sum()


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], likelihood: Likelihood) -> tuple[float, float]:
    """Mean NLL and accuracy (NaN for regression) in evaluation mode."""
    mode = model.training
    model.eval()
    sums = _Sums()
    device = next(model.parameters()).device
    for batch in batches:
        outputs, targets = likelihood.check(batch.to(device).outputs(model), batch.targets.to(device))
        nll = float(likelihood.nll(outputs, targets)) / batch.count
        sums.add(batch.count, nll, nll, _right(outputs, targets))
    model.train(mode)
    return sums.nll, sums.accuracy


def split(data: Data, validation: float | Data | None, generator: torch.Generator) -> tuple[Data, Data | None]:
    """The data to train on and the data to watch."""
    if not isinstance(validation, float | int):
        return data, validation
    if not 0 <= validation < 1:
        raise ValueError(f"a validation share lies between 0 and 1, not {validation}")
    indexed = data.dataset if isinstance(data, DataLoader) else data
    pair = isinstance(indexed, (tuple, list)) and all(isinstance(x, Tensor) for x in indexed)
    if not pair and not (isinstance(indexed, Dataset) and hasattr(indexed, "__len__")):
        raise BadData(
            "a share for validation can be taken from tensors and datasets with a length: pass validation data instead."
        )
    total = len(indexed[0]) if pair else len(indexed)  # type: ignore[index, arg-type]
    held = round(total * validation)
    if not held:
        return data, None
    if held == total:
        raise NoData(f"a validation share of {validation} leaves none of {total} examples to train on.")
    order = torch.randperm(total, generator=generator)
    first, second = order[held:], order[:held]
    if pair:
        return tuple(x[first] for x in indexed), tuple(x[second] for x in indexed)  # type: ignore[union-attr]
    parts = [Subset(indexed, part.tolist()) for part in (first, second)]  # type: ignore[arg-type]
    if not isinstance(data, DataLoader):
        return parts[0], parts[1]
    rest: dict[str, Any] = {
        "batch_size": data.batch_size,
        "num_workers": data.num_workers,
        "collate_fn": data.collate_fn,
    }
    return DataLoader(parts[0], shuffle=True, generator=generator, **rest), DataLoader(parts[1], **rest)


class _Source:
    """Batches of training data, in a new order every epoch where we are the ones to shuffle."""

    def __init__(self, data: Data, batch_size: int, shuffle: torch.Generator | None) -> None:
        self.data, self.batch_size, self.shuffle = data, batch_size, shuffle
        self.pair = isinstance(data, (tuple, list)) and len(data) == 2 and all(isinstance(x, Tensor) for x in data)
        if not self.pair and isinstance(data, Dataset):
            self.data = DataLoader(data, batch_size=batch_size, shuffle=shuffle is not None, generator=shuffle)
        if self.pair:
            self.count = len(data[0])  # type: ignore[index]
        elif isinstance(self.data, DataLoader):
            self.count = len(self.data.dataset)  # type: ignore[arg-type]
        else:
            self.count = sum(batch.count for batch in self)

    def __iter__(self) -> Iterator[Batch]:
        if not self.pair:
            yield from (Batch.of(raw, index) for index, raw in enumerate(self.data))  # type: ignore[arg-type]
            return
        x, y = self.data  # type: ignore[misc]
        order = torch.arange(self.count) if self.shuffle is None else torch.randperm(self.count, generator=self.shuffle)
        for start in range(0, self.count, self.batch_size):
            index = order[start : start + self.batch_size]
            yield Batch((x[index],), {}, y[index], start // self.batch_size)


class _Sums:
    """Means over an epoch, each batch by its size."""

    def __init__(self) -> None:
        self.count, self.totals = 0, [0.0, 0.0, 0.0]

    def add(self, count: int, *means: float) -> None:
        self.count += count
        self.totals = [total + count * mean for total, mean in zip(self.totals, means, strict=True)]

    @property
    def objective(self) -> float:
        return self.totals[0] / self.count

    @property
    def nll(self) -> float:
        return self.totals[1] / self.count

    @property
    def accuracy(self) -> float:
        return self.totals[2] / self.count


def _right(outputs: Tensor, targets: Tensor) -> float:
    """The share of right answers, where targets are classes."""
    if targets.is_floating_point():
        return math.nan
    return float((outputs.argmax(-1) == targets).double().mean()) if targets.numel() else 0.0


def _line(epoch: Epoch) -> str:
    held = (
        ""
        if math.isnan(epoch.validation_nll)
        else f"  held out {epoch.validation_nll:.4f}/{epoch.validation_accuracy:.3f}"
    )
    return f"nll {epoch.nll:.4f}  acc {epoch.accuracy:.3f}{held}"
