"""Rivals with one network for all tasks and a head for each: fine-tuning, EWC, online Laplace."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from posterity.algebra import DiagonalMatrix, Matrix
from posterity.blocks import find_blocks, read_blocks
from posterity.curvature import KFAC, Diagonal, Estimator, Likelihood, estimate
from posterity.gaussian import Gaussian
from posterity.laplace import Scales, isotropic, train, update
from posterity.predictive import Prediction
from posterity.progressive import Task
from posterity.progressive.bpnn import seed_of
from posterity.progressive.training import EPOCHS
from posterity_studies.shared.continual.learner import HeadLearner, plain_prediction


@dataclass(frozen=True, eq=False)
class State:
    """The network after some tasks: what they share, each one's head, and what is believed of the shared weights."""

    network: nn.Module
    heads: Mapping[str, nn.Module]
    likelihoods: Mapping[str, Likelihood]
    belief: Gaussian | None = None


class OneNetwork(HeadLearner):
    """Trains the same weights on task after task. What holds them back is the subclass's to say.

    `precision` is that of an isotropic prior around zero, next to the summed NLL, of the first task and of every head.
    """

    state: State | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        return () if self.state is None else tuple(self.state.heads)

    @property
    def parameters(self) -> dict[str, int]:
        """The first task brings the network, later ones a head each."""
        if self.state is None:
            return {}
        heads = {task: sum(p.numel() for p in head.parameters()) for task, head in self.state.heads.items()}
        slot = self.state.network.get_submodule(self.architecture.head)
        whole = sum(p.numel() for p in self.state.network.parameters())
        heads[self.tasks[0]] += whole - sum(p.numel() for p in slot.parameters())
        return heads

    @property
    def bytes(self) -> dict[str, int]:
        if self.state is None:
            return {}
        size = next(self.state.network.parameters()).element_size()
        found = {task: size * n for task, n in self.parameters.items()}
        if self.state.belief is not None:
            found[self.tasks[0]] += self.state.belief.nbytes
        return found

    def learn(self, task: Task, *, generator: torch.Generator | None = None, progress: bool = True) -> State:
        self.state = self.draft(task, generator=generator, progress=progress)
        return self.state

    def adopt(self, state: State) -> None:
        """Take over what `draft` made."""
        self.state = state

    def draft(self, task: Task, *, generator: torch.Generator | None = None, progress: bool = True) -> State:
        """Learn a task and leave the learner as it is: several ways can be tried, and `adopt` takes one."""
        self._accept(task)
        before = self.state
        seed = seed_of(self.seed, len(self.tasks), generator)
        dice = torch.Generator().manual_seed(seed)
        network = self.architecture.grow([], task.classes, seed).module
        head = network.get_submodule(self.architecture.head)
        if before is not None:
            network = copy.deepcopy(before.network)
            network.set_submodule(self.architecture.head, head)
        prior = self._prior(network, None if before is None else before.belief)
        options: dict[str, Any] = {
            "validation": task.validation,
            "progress": progress,
            "epochs": EPOCHS,
            "start": "model",
        }
        options |= self.training
        train(network, task.train, prior, task.likelihood, groups=task.groups, generator=dice, **options)
        belief = self._remember(network, task, prior, dice)
        heads = {} if before is None else before.heads
        likelihoods = {} if before is None else before.likelihoods
        return State(network, {**heads, task.name: head}, {**likelihoods, task.name: task.likelihood}, belief)

    def _prior(self, network: nn.Module, belief: Gaussian | None) -> Gaussian:
        """What is believed of the shared weights, and an isotropic prior for the head and for what nothing is known of."""
        flat = isotropic(network, self.precision)
        if belief is None:
            return flat
        mixed = replace(flat, mean={**flat.mean, **belief.mean}, precision={**flat.precision, **belief.precision})
        return mixed.with_provenance(flat.provenance.joined(belief.provenance))

    @abstractmethod
    def _remember(self, network: nn.Module, task: Task, prior: Gaussian, dice: torch.Generator) -> Gaussian | None:
        """What is believed of the shared weights from now on."""

    def predict(
        self, x: Tensor | Mapping[str, Any], task: str, *, generator: torch.Generator | None = None
    ) -> Prediction:
        self._number(task)
        assert self.state is not None
        network, slot = self.state.network, self.architecture.head
        present = network.get_submodule(slot)
        try:
            network.set_submodule(slot, self.state.heads[task])
            return plain_prediction(network, x, self.state.likelihoods[task])
        finally:
            network.set_submodule(slot, present)


class FineTuning(OneNetwork):
    """Nothing holds the shared weights but weight decay: the floor."""

    def _remember(self, network: nn.Module, task: Task, prior: Gaussian, dice: torch.Generator) -> None:
        return None


class EWC(OneNetwork):
    """Elastic weight consolidation (Kirkpatrick et al. 2017): a quadratic for each earlier task, by its diagonal Fisher.

    The sum of these quadratics is one: precisions add, and the mean is theirs weighted by precision. `strength` is λ.
    """

    def __init__(self, model: nn.Module, head: str | None = None, *, strength: float = 1.0, **options: Any) -> None:
        super().__init__(model, head, **options)
        self.strength = strength

    def _remember(self, network: nn.Module, task: Task, prior: Gaussian, dice: torch.Generator) -> Gaussian:
        shared = _shared(network, self.architecture.head)
        fisher = estimate(
            network, task.train, Diagonal(), task.likelihood, blocks=shared, generator=dice, progress=False
        )
        weights = read_blocks(network, find_blocks(network, shared))
        mean: dict[str, Tensor] = {}
        precision: dict[str, Matrix] = {}
        for name, here in weights.items():
            before = _diagonal(prior.precision[name])
            new = self.strength * _diagonal(fisher[name])
            total = before + new
            mean[name] = ((before * prior.mean[name].double() + new * here.double()) / total).to(here)
            precision[name] = DiagonalMatrix(total)
        return Gaussian(mean, precision).with_provenance(prior.provenance.joined(fisher.provenance))


class OnlineLaplace(OneNetwork):
    """Online structured Laplace (Ritter et al. 2018): the posterior, in Kronecker factors, is the next task's prior.

    `strength` multiplies the curvature of each task, as their λ does.
    """

    def __init__(
        self,
        model: nn.Module,
        head: str | None = None,
        *,
        strength: float = 1.0,
        estimator: Estimator | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, head, **options)
        self.strength, self.estimator = strength, estimator or KFAC()

    def _remember(self, network: nn.Module, task: Task, prior: Gaussian, dice: torch.Generator) -> Gaussian:
        shared = _shared(network, self.architecture.head)
        curvature = estimate(
            network, task.train, self.estimator, task.likelihood, blocks=shared, generator=dice, progress=False
        )
        trunk = prior.restricted(find_blocks(network, shared))
        return update(network, curvature, trunk, Scales(beta=self.strength), join="sum").compress()


def _shared(network: nn.Module, head: str) -> Any:
    return lambda name, module: name != head


def _diagonal(matrix: Matrix) -> Tensor:
    match matrix:
        case DiagonalMatrix():
            return matrix.values.double()
    # An identity, and an elementwise layer's, in a frame where it is diagonal already.
    return torch.ones(matrix.shape, dtype=torch.float64) * (matrix.trace().double() / matrix.size)
