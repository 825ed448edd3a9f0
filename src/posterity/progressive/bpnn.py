"""Bayesian progressive networks: the paper's Algorithm 2."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.algebra import FlooredMatrix, JointEigen, Matrix, RotatedMatrix, eigenframe, is_large
from posterity.blocks import Replicas, find_blocks, named, run_with, write_blocks
from posterity.curvature import EKFAC, KFOC, Categorical, Curvature, Estimator, GivenFrame, Likelihood, estimate
from posterity.data import Data
from posterity.data.batches import Batch, batches
from posterity.data.provenance import Provenance, past_of, sign, together
from posterity.errors import NoData, RepeatedTask, UnknownTask
from posterity.gaussian import Gaussian
from posterity.gaussian.frozen import FrozenState, frozen_fingerprint
from posterity.kernel import Calibration
from posterity.laplace import History, Scales, tune_strength, update
from posterity.laplace.prior import refresh
from posterity.laplace.run import evaluate
from posterity.laplace.update import Join
from posterity.novelty import set_aside, to_known
from posterity.pacbayes import Certificate, Landscape, certify, one_number
from posterity.pacbayes.tune import BoundName
from posterity.predictive import Prediction, predict, score
from posterity.predictive.draws import linear_draws
from posterity.predictive.prediction import from_outputs
from posterity.progressive.column import Architecture, Column
from posterity.progressive.left_out import TAUS, column_calibration
from posterity.progressive.memory import POOL
from posterity.progressive.network import Draws, Network, PastColumns, influential
from posterity.progressive.prior import column_prior, joined, lateral_block, own_block, start_at
from posterity.progressive.task import Task
from posterity.progressive.training import MEMORY_LIMIT, prior_adam, train_column

Scaling = Scales | Literal["loo", "evidence"] | BoundName
"""How a column's α, β, τ are chosen: by leave-one-out (τ, with α = β = 1), given, of greatest evidence, or of least bound
estimate."""

Predictive = Literal["sampled", "jvp"]


@dataclass(frozen=True, eq=False)
class LearnedTask:
    """A task that was learned: its column, where it came from, and how sure it is. Both Gaussians are over new blocks alone."""

    task: str
    likelihood: Likelihood
    classes: int
    column: Column
    prior: Gaussian
    posterior: Gaussian
    trace: float
    """tr(F Σ) of the new blocks, an example: what this column adds to the approximate risk of all later ones."""
    history: History | None = None
    calibration: Calibration | None = None
    """τ, which the posterior has already, and the temperature of the probabilities: where leave-one-out chose them."""

    @cached_property
    def untempered(self) -> Gaussian:
        """The posterior as it was before leave-one-out chose its width, which predictions bring back by the calibration."""
        return self.posterior if self.calibration is None else self.posterior.tempered(1 / self.calibration.tau)

    @property
    def kl(self) -> float:
        """KL(posterior ‖ prior) in nats: all that the task's bound has to pay for."""
        return float(self.posterior.kl(self.prior))


class BPNN:
    """A column for each task, with a learned prior for its layers and posteriors of earlier columns for its laterals.

    While a column learns, earlier ones are drawn from their posteriors, a draw for each batch. How wide its own posterior is, and
    how soft its probabilities, is chosen by leave-one-out on its training examples, with earlier columns at their means: no
    validation data is needed.
    Only the new blocks have curvature, scales and a share in the KL divergence. A column starts at its prior's mean, or at the
    model's weights where that is zero. Batch statistics stay at the model's. Earlier tasks stay bit-identical.

    Args:
        model: the architecture of a column and its initial weights. Parameters with requires_grad False are shared by all
            columns and never trained.
        prior: the learned prior of the layers of every column.
        laterals: the layers where earlier columns lead in, as paths or patterns.
        head: the layer that each task has in its own size; the last linear one by default.
        estimator: of the curvature; by default `EKFAC()` where leave-one-out chooses, else `KFOC()`, the paper's.
        scales: how α, β and τ of a column are chosen: "loo" (leave-one-out), "evidence", the name of the bound to be least
            ("catoni", "mcallester", "maurer"), or `Scales` that are given.
        temperatures: the new blocks take one of these: by leave-one-out where `scales` is "loo" (from 1e-6 to 1 by default),
            else the one of least validation NLL (1 by default).
        head_precision: of the isotropic prior of a head that the learned prior does not have.
        samples: draws of a prediction.
        predictive: how predictions are made where leave-one-out chose no width: "sampled", networks drawn from all columns; or
            "jvp", draws of the network made linear in the weights of the task's own column, with earlier ones at their means.
            Temperatures are chosen for the same.
        backbone: a frozen module that runs once before all columns.
        training: options of `train` (lr, epochs, …), and `head_first=True` to fit each new head before its column moves.
        frames: a Gaussian over the layers of a column, the learned prior say, in whose eigenvectors every column's posterior is
            kept. For large networks: no column decomposes anything, and each holds one number a weight beside its weights. Blocks
            that it does not have, such as heads, are left to the estimator.
        memory_limit: bytes for keeping what earlier columns hand on while a column trains. Batches then take their draws in
            turn from a pool of up to eight; with 0 no two batches see the same draw.
        seed: all randomness follows from it, unless a generator is given.

    Example:
        >>> bpnn = pt.BPNN(model, prior=source.posterior, laterals=["3", "7", "9"], head="11")
        >>> for task in stream: bpnn.learn(task)
        >>> bpnn.predict(x, task="apple").probs
    """

    learned: tuple[LearnedTask, ...] = ()

    def __init__(
        self,
        model: nn.Module,
        prior: Gaussian,
        laterals: Sequence[str] | str,
        head: str | None = None,
        *,
        estimator: Estimator | None = None,
        scales: Scaling = "loo",
        temperatures: Sequence[float] | None = None,
        head_precision: float = 1.0,
        samples: int = 100,
        predictive: Predictive = "sampled",
        backbone: nn.Module | None = None,
        training: Mapping[str, Any] | None = None,
        frames: Gaussian | None = None,
        memory_limit: int = MEMORY_LIMIT,
        seed: int = 0,
    ) -> None:
        self.architecture = Architecture.of(model, laterals, head)
        self.frames = frames
        self.prior = prior if prior.is_compressed else prior.compress()
        if temperatures is None:
            temperatures = TAUS if scales == "loo" else (1.0,)
        self.estimator = estimator or default_estimator(scales)
        self.scales, self.temperatures = scales, tuple(temperatures)
        self.head_precision, self.samples, self.backbone = head_precision, samples, backbone
        self.predictive = predictive
        self.training, self.memory_limit, self.seed = dict(training or {}), memory_limit, seed
        # A prior that does not fit shows here, not after the first task has come.
        column_prior(self.prior, self.architecture, Column(model, nn.ModuleList()), [], head_precision)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks learned, in their order."""
        return tuple(entry.task for entry in self.learned)

    @property
    def parameters(self) -> dict[str, int]:
        """How many numbers each task added."""
        return {entry.task: entry.column.parameters for entry in self.learned}

    @property
    def bytes(self) -> dict[str, int]:
        """What each task added in memory. A tensor that several hold, a shared basis say, counts where it came in first."""
        found: dict[str, int] = {}
        held = {x.untyped_storage().data_ptr() for x in self._shared()}
        for entry in self.learned:
            tensors = [*entry.column.tensors, *entry.posterior.mean.values()]
            for matrix in entry.posterior.precision.values():
                tensors += matrix.tensors()[1].values()
            storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
            found[entry.task] = sum(size for place, size in storages.items() if place not in held)
            held |= storages.keys()
        return found

    def _shared(self) -> list[Tensor]:
        """The eigenvectors that all columns have in common."""
        frames = () if self.frames is None else (eigenframe(m) for m in self.frames.precision.values())
        return [basis.matrix for frame in frames if frame is not None for basis in (frame.left, frame.right)]

    # --- learning ----------------------------------------------------------------------------------

    def learn(self, task: Task, *, generator: torch.Generator | None = None, progress: bool = True) -> LearnedTask:
        """Learn one more task. Without a generator, randomness follows from the learner's seed and the task's number."""
        entry = self.draft(task, generator=generator, progress=progress)
        self.adopt(entry)
        return entry

    def adopt(self, entry: LearnedTask) -> None:
        """Add a column that `draft` made."""
        self.learned = (*self.learned, entry)

    def draft(
        self,
        task: Task,
        *,
        prior: Gaussian | Sequence[Gaussian] | None = None,
        generator: torch.Generator | None = None,
        progress: bool = True,
    ) -> LearnedTask:
        """Learn a column without adding it, which `adopt` does.

        Of several priors (of other strengths, say) the one with the least left-out NLL is taken, or, where `scales` is not
        "loo", the one whose MAP network has the least validation NLL. Then the prior has seen the data that chose, and a
        certificate on it pays.
        """
        task.check()
        if task.name in self.tasks:
            raise RepeatedTask(f'task "{task.name}" has been learned already: give the new one another name.')
        priors = [prior or self.prior] if prior is None or isinstance(prior, Gaussian) else list(prior)
        by = task.train if self.scales == "loo" else task.validation
        if len(priors) > 1 and by is None:
            raise NoData(f'task "{task.name}" has no validation data to choose among {len(priors)} priors by.')
        seed = seed_of(self.seed, len(self.learned), generator)
        trials = [self._trained(task, candidate, seed, progress) for candidate in priors]
        if self.scales != "loo" and len(trials) > 1:
            assert by is not None
            held = [evaluate(trial.network, batches(by, 1024), task.likelihood)[0] for trial in trials]
            trials = [trials[held.index(min(held))]]
        entry, _ = min((self._settled(trial, task, seed, progress) for trial in trials), key=lambda found: found[1])
        if len(priors) > 1:
            assert by is not None
            seen = entry.prior.provenance.chose("the prior", options=len(priors), by=Provenance.of(by))
            entry = replace(entry, prior=entry.prior.with_provenance(seen))
        return entry

    def _settled(self, trial: _Trial, task: Task, seed: int, progress: bool) -> tuple[LearnedTask, float]:
        """How sure a trained column is (curvature, scales and temperature), and its left-out NLL where it was looked at."""
        column, own, network = trial.column, trial.prior, trial.network
        curvature = estimate(
            network,
            task.train,
            self._estimator(),
            task.likelihood,
            blocks=named(own.mean),
            batch_size=self.training.get("batch_size", 256),
            generator=torch.Generator().manual_seed(seed + 1),
            progress=progress,
        )
        posterior = update(network, curvature, own, self._scales(own, network, curvature), join=_join(own, curvature))
        # What a column shares with the model is in the learner's own folder.
        alone, size = self._at_means(column), self.training.get("batch_size", 256)
        known = to_known(set_aside(alone, task.train, task.validation, task.likelihood, size))
        posterior, calibration, nll = replace(posterior, frozen=FrozenState(), known=known), None, math.inf
        if self.scales == "loo":
            calibration, nll = column_calibration(alone, own, posterior, task, self.temperatures, size)
            temperature = calibration.tau
        else:
            temperature = self._best_temperature(posterior, column, task, seed)
        posterior = _fresh(posterior.tempered(temperature))
        traces = [posterior.precision[n].trace_of(_wide(curvature[n])) for n in own.blocks]
        trace = float(torch.stack([found.double() for found in traces]).sum()) / curvature.count
        names = task.name, task.likelihood, task.classes
        return LearnedTask(*names, column, own, posterior, trace, trial.history, calibration), nll

    def _estimator(self) -> Estimator:
        """Of the next column's curvature: in the eigenvectors that columns share, where there are any."""
        if self.frames is None:
            return self.estimator
        t, known = len(self.learned), self.frames.precision
        frames = {own_block(t, name): matrix for name, matrix in known.items()}
        for k, path in enumerate(self.architecture.laterals):
            frames |= {lateral_block(t, i, k): known[path] for i in range(t) if path in known}
        return GivenFrame(self.estimator.labels, frames, self.estimator, self.frames.provenance)

    def _trained(self, task: Task, prior: Gaussian, seed: int, progress: bool) -> _Trial:
        """A new column at the mode of its posterior."""
        column = self.architecture.grow([entry.column for entry in self.learned], task.classes, seed)
        single = prior if prior.is_compressed else prior.compress()
        posteriors = [entry.posterior for entry in self.learned]
        own = column_prior(single, self.architecture, column, posteriors, self.head_precision)
        network = self._in_training(column, seed)
        start_at(network, own)
        options: dict[str, Any] = {"validation": task.validation, "progress": progress} | self.training
        if "optimiser" not in options:  # its coordinates are eigenvectors of every block: made where they are used
            options["optimiser"] = prior_adam(network, own, options.get("lr", 5e-4))
            # It searches along no line, so forces may lag: see `PriorPenalty`.
            options["prior_every"] = options.get("prior_every") or refresh(own)
        past = self._past(column, own)
        head = own_block(len(self.learned), self.architecture.head)
        history = train_column(network, task, own, self.memory_limit, seed, options, head)
        # Training may have been given numbers for examples: what the weights have seen is noted here.
        given = [task.train, task.validation, options["validation"]]
        sign(
            network, past.joined(*(Provenance.of(x) for x in given if x is not None and not isinstance(x, float | int)))
        )
        return _Trial(column, own, network.eval(), history)

    def _past(self, column: Column, own: Gaussian) -> Provenance:
        """What a column has seen before it learns: its prior, earlier columns, and whatever the model brought along."""
        t = len(self.learned)
        means = {n: own.mean[own_block(t, n)] for n in find_blocks(column.module)}
        shared = [] if self.backbone is None else [past_of(self.backbone)]
        return together([own.provenance, past_of(column.module, means, own.provenance), *shared])

    def _in_training(self, column: Column, seed: int) -> Network:
        """The network that learns: earlier columns run without gradients, at weights drawn for each batch."""
        earlier, draws = [entry.column for entry in self.learned], None
        if earlier:
            past = joined([entry.posterior for entry in self.learned])
            draws = Draws(past, PastColumns(earlier, self.architecture.laterals), seed)
        return self._network([*earlier, column], past=len(earlier), draws=draws)

    def _scales(self, prior: Gaussian, network: Network, curvature: Curvature) -> Scales:
        """α, β, τ of the new blocks. The approximate risk has the constant trace of the frozen columns in it.

        As in the paper, each frozen column's trace is the one of its own task; here by the example, since a Fisher
        information summed over another number of examples is not in the units of this one.
        """
        match self.scales:
            case Scales():
                return self.scales
            case "loo":
                return Scales()
            case "evidence":
                return tune_strength(network, curvature, prior)
        landscape = Landscape.of(prior, network, curvature)
        frozen = sum(entry.trace for entry in self.learned) * curvature.count
        return one_number(replace(landscape, nll=landscape.nll + 0.5 * frozen), self.scales).scales

    def _best_temperature(self, posterior: Gaussian, column: Column, task: Task, seed: int) -> float:
        """The one of least validation NLL, each tried on the same draws: as predictions take them, of at most `POOL` networks."""
        if len(self.temperatures) == 1:
            return self.temperatures[0]
        if task.validation is None:
            raise NoData(f'task "{task.name}" has no validation data to choose among {self.temperatures} by.')
        held = Batch.joined(list(batches(task.validation, 1024)))
        outputs = self._linear_draws if self.predictive == "jvp" else self._drawn_networks
        losses = {}
        for temperature, drawn in outputs(posterior, column, held, seed):
            losses[temperature] = _nll(from_outputs(drawn, task.likelihood, drawn.mean(0), False), held.targets)
        return min(losses, key=lambda temperature: losses[temperature])

    def _drawn_networks(
        self, posterior: Gaussian, column: Column, held: Batch, seed: int
    ) -> Iterator[tuple[float, Tensor]]:
        """Outputs at each temperature of networks drawn from all columns."""
        # Draws that neither the column's training nor each other has anything to do with.
        network = self._in_training(column, seed + 2).eval()
        own = Draws(posterior, network, seed + 3)
        mean = write_blocks(own.blocks, own.mean)
        (x,) = held.to(own.like.device).positional
        # Earlier columns do not depend on the temperature of this one: each draw of them runs once.
        inputs = torch.arange(len(x)) if network.remember([x], self.memory_limit) else x
        outputs: dict[float, list[Tensor]] = {temperature: [] for temperature in self.temperatures}
        for k in range(min(POOL, self.samples)):
            network.fixed_draw, drawn = k, own.at(k)
            for temperature, found in outputs.items():
                # A draw at temperature τ is the mean and √τ of the way to the draw at temperature one.
                weights = {n: m + temperature**0.5 * (drawn[n] - m) for n, m in mean.items()}
                with torch.no_grad():
                    found.append(run_with(network, weights, (inputs,)))
        return ((temperature, torch.stack(found)) for temperature, found in outputs.items())

    def _linear_draws(
        self, posterior: Gaussian, column: Column, held: Batch, seed: int
    ) -> Iterator[tuple[float, Tensor]]:
        """Draws of the network made linear in its own column, whose draws τ only scales."""
        network, dice = self._at_means(column), torch.Generator().manual_seed((seed + 3) % 2**63)
        device = next(network.parameters()).device
        inputs = [held.rows(some).to(device) for some in torch.arange(held.count).split(250)]
        mean, shifts = linear_draws(network, posterior, inputs, (self.samples + 1) // 2, dice)
        for temperature in self.temperatures:
            yield temperature, torch.cat([mean + temperature**0.5 * shifts, mean - temperature**0.5 * shifts])

    # --- using -------------------------------------------------------------------------------------

    def network(self, task: str) -> Network:
        """The columns that feed a task, as one module in evaluation mode. It shares the learner's own weights."""
        return self._network([entry.column for entry in self.learned[: self._number(task) + 1]]).eval()

    def posterior(self, task: str) -> Gaussian:
        """Over all blocks of all columns that feed a task."""
        feeding = [entry.posterior for entry in self.learned[: self._number(task) + 1]]
        return replace(joined(feeding), known=feeding[-1].known)

    def prior_of(self, task: str) -> Gaussian:
        """What was believed before a task's data came: earlier columns as they are, the prior of its own.

        The matrices of earlier columns are those of `posterior(task)`, so their KL divergence is zero. The card counts all data
        that earlier columns and the learned prior have seen.
        """
        number = self._number(task)
        earlier, this = self.learned[:number], self.learned[number]
        prior = joined([*(entry.posterior for entry in earlier), this.prior])
        network = self.network(task)
        # Norm statistics and shared modules are fixed while a column learns: what is there now was there before the data.
        frozen = frozen_fingerprint(network, find_blocks(network, named(prior.mean)))
        return replace(prior, card=replace(prior.card, frozen=frozen))

    @torch.inference_mode(False)
    def predict(
        self,
        x: Tensor | Mapping[str, Any],
        task: str,
        *,
        generator: torch.Generator | None = None,
        samples: int | None = None,
        method: Literal["sampled", "linearised"] | None = None,
        keep_draws: bool = False,
    ) -> Prediction:
        """The predictive distribution of a task.

        Where leave-one-out chose its width, it is that of the task's own column, made linear in its weights, with earlier columns
        at their means: what was chosen for. Likewise where the learner's `predictive` is "jvp". Otherwise, and with `method`, it
        is over all columns that feed the task.

        Args:
            x: inputs, a tensor or what the network takes by name.
            task: the name of a task that was learned.
            generator: of the draws.
            samples: how many draws; the learner's own number by default.
            method: "sampled" or "linearised" over all columns, as for `pt.predict`.
            keep_draws: whether to keep the outputs of every draw.
        Returns:
            A `Prediction`.
        Raises:
            UnknownTask: if no task of this name was learned.
        """
        entry = self.learned[self._number(task)]
        options: dict[str, Any] = {
            "samples": samples or self.samples,
            "generator": generator,
            "keep_draws": keep_draws,
        }
        found = entry.calibration
        if method is None and found is not None:
            with self._replicas(task).one() as replica:
                return predict(replica.module, entry.untempered, x, entry.likelihood, calibration=found, **options)
        with self._replicas(task).one() as replica:
            if method is None and self.predictive == "jvp":
                return predict(replica.module, entry.posterior, x, entry.likelihood, method="jvp", **options)
            whole = self.posterior(task)
            if method != "linearised":
                whole = whole.restricted(_reached(replica.module, whole, x))
            return predict(replica.module, whole, x, entry.likelihood, method=method or "sampled", **options)

    def _replicas(self, task: str) -> Replicas:
        """For predictions from several threads: columns that were learned do not change, so their weights are shared."""
        number = self._number(task)
        found = self.__dict__.setdefault("_served", {})
        if number not in found:
            found[number] = Replicas(self.network(task), own=False)
        return found[number]

    def certify(
        self, task: Task | str, data: Data | None = None, confidence: float = 0.95, **options: Any
    ) -> Certificate:
        """A risk bound for a task, over all columns that feed it. Only its own column has a KL divergence.

        Args:
            task: the task, or its name.
            data: what certifies; the task's training data by default, by its groups.
            confidence: with which the bound holds.
            options: of `pt.certify`.
        Returns:
            A `Certificate`.
        Raises:
            NoData: if a name is given without data.
        """
        name = task if isinstance(task, str) else task.name
        if data is None and isinstance(task, Task):
            data, options = task.train, {"groups": task.groups} | options
        self._number(name)
        if data is None:
            raise NoData(f'a certificate for "{name}" needs data: give the task itself, or data=...')
        likelihood = self.learned[self._number(name)].likelihood
        options = {"likelihood": likelihood} | options
        return certify(self.network(name), self.posterior(name), self.prior_of(name), data, confidence, **options)

    # --- files -------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the learner into a folder. Columns that are there already are not written again."""
        from posterity.progressive.storage import save  # which builds learners, and so imports this module first

        save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: nn.Module, **options: Any) -> BPNN:
        """The learner of a folder, for the same architecture, the same to the last bit. `options` as for a new one."""
        from posterity.progressive.storage import load

        return load(folder, model, **options)

    def _number(self, task: str) -> int:
        if task not in self.tasks:
            raise UnknownTask(f'no task "{task}" has been learned: there are {list(self.tasks)}.')
        return self.tasks.index(task)

    def _at_means(self, column: Column) -> Network:
        """A new column with earlier ones at their means."""
        earlier = [entry.column for entry in self.learned]
        return self._network([*earlier, column], past=len(earlier)).eval()

    def _network(self, columns: Sequence[Column], *, past: int = 0, draws: Draws | None = None) -> Network:
        return Network(
            columns,
            self.architecture.laterals,
            past=past,
            draws=draws,
            backbone=self.backbone,
            statistics_fixed=True,
        )


@dataclass(frozen=True, eq=False)
class _Trial:
    """A column at its mode, before it is known how sure it is."""

    column: Column
    prior: Gaussian
    network: Network
    history: History


def _fresh(gaussian: Gaussian) -> Gaussian:
    """The same without the decompositions that its matrices keep: those of a scaled matrix are rounded differently."""
    return replace(gaussian, precision={name: replace(m) for name, m in gaussian.precision.items()})  # type: ignore[type-var]


def _reached(network: Any, posterior: Gaussian, x: Any) -> list[str]:
    """The blocks that an output depends on: draws of others, earlier heads and what lies behind the last lateral, go unseen."""
    if len(network.columns) == 1 or not isinstance(x, Tensor):
        return list(posterior.blocks)
    blocks = find_blocks(network, named(posterior.mean))
    few = x[:2].to(next(network.parameters()).device, copy=True)  # one made under inference_mode has no gradients
    found = influential(network, lambda: [network(few)])
    return [n for n, block in blocks.items() if not found.isdisjoint(block.parameters.values())]


def _nll(prediction: Prediction, targets: Tensor) -> float:
    """The mean NLL, in nats."""
    targets = targets.to(prediction.mean.device)
    if isinstance(prediction.likelihood, Categorical):
        return score(prediction.probs, targets).nll
    outputs, checked = prediction.likelihood.check(prediction.logits, targets)
    return float(prediction.likelihood.nll(outputs, checked)) / len(targets)


def seed_of(seed: int, number: int, generator: torch.Generator | None) -> int:
    """The seed of a task: from the generator if there is one, else from the learner's seed and the task's number.

    The second makes a stream that is saved and taken up again go on to the same bits.
    """
    if generator is not None:
        return int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:7], "little")


def default_estimator(scales: Scaling) -> Estimator:
    """Leave-one-out wants a curvature whose trace is true; the paper's ways have the paper's."""
    return EKFAC() if scales == "loo" else KFOC()


def _wide(matrix: Matrix) -> Matrix:
    """In float64, but for large blocks, which stay what they are."""
    return matrix if is_large(*matrix.shape) else matrix.to(dtype=torch.float64)


def _join(prior: Gaussian, curvature: Curvature) -> Join:
    """What is in one eigenframe stays so; Kronecker pairs, the paper's form, are joined as the paper does."""
    matrices = [*prior.precision.values(), *(curvature[name] for name in prior.blocks)]
    return (
        "frame" if any(isinstance(matrix, FlooredMatrix | JointEigen | RotatedMatrix) for matrix in matrices) else "sum"
    )
