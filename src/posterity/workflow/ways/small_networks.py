"""A regression without a source: networks that leave a part of the examples out choose the prior's strength and the noise.

Features that were trained have seen every label: leaving an example out of the *linearised* network is too kind to it, and it can
judge no strength of the prior but the one trained with. Networks that never saw the example are honest on both. They are small
here, and all of them train together, in one batched pass a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import grad, vmap

from posterity.bars import track
from posterity.blocks import Replica, evaluating, find_blocks, named, read_blocks
from posterity.blocks.replicas import copied
from posterity.curvature import GaussianNoise
from posterity.data.batches import Batch
from posterity.data.examples import TrainingSet
from posterity.data.provenance import past_of, sign, together
from posterity.errors import NotFinite
from posterity.gaussian import Gaussian
from posterity.kernel import Calibration, LeaveOneOut, StrengthChoice, calibrate
from posterity.laplace import isotropic
from posterity.novelty import of_folds
from posterity.predictive.exact import AveragedNetworks, ExactLinear
from posterity.predictive.predictor import Predictor, Stack
from posterity.workflow.problem import Problem
from posterity.workflow.recipe import SmallNetworks
from posterity.workflow.ways.candidate import Candidate, Options, deviations_from
from posterity.workflow.ways.one_network import around_network

NOISES = tuple(10.0 ** (k / 20) for k in range(-40, 11))
"""Variances of the noise, in units of the squared errors that were left out."""
PRECISIONS = tuple(10.0 ** (k / 4) for k in range(-48, 49))
"""Of the prior in the end: a finite grid, which certificates pay for."""


@dataclass(frozen=True, eq=False)
class Siblings:
    """Networks of one strength of the prior: one that saw all examples, and one without each fold."""

    noise: GaussianNoise
    """Under which they were trained."""
    network: Mapping[str, Tensor]
    others: tuple[Mapping[str, Tensor], ...]
    folds: Int[Tensor, " n"]
    """Which of the others has not seen an example."""
    precision: float
    """Of the isotropic prior that they were trained under."""

    @property
    def shares(self) -> list[float]:
        """Weights of the networks: the first counts as much as the others together."""
        return [0.5, *(0.5 / len(self.others) for _ in self.others)]


def small_networks(problem: Problem, options: Options) -> Candidate:
    """Siblings that leave a fifth out each choose strength, noise and width; around each there is an exact posterior.

    Of more examples than that takes, the siblings are averaged as they are.
    """
    model, likelihood, examples = problem.model, problem.likelihood, problem.examples
    assert isinstance(likelihood, GaussianNoise)
    assert examples is not None
    siblings = train_siblings(problem, options.recipe.small_networks, options.progress)
    started = past_of(model)  # siblings begin at the network's own weights
    model.load_state_dict(siblings.network, strict=False)
    prior = isotropic(model, siblings.precision, blocks=named(problem.prior.mean))
    seen = prior.provenance.chose("the strength of the prior", options=len(PRECISIONS), by=problem.seen)
    prior = replace(prior, card=replace(prior.card, provenance=seen))
    sign(model, together([started, seen, problem.seen]))
    found: Predictor
    if problem.few is None:
        found, moments = averaged_siblings(problem, siblings, options)
    else:
        found, moments = around_siblings(problem, prior, siblings, options)
    networks = [siblings.network, *siblings.others]
    reference = of_folds(model, networks, examples.whole, problem.leave_out, likelihood)
    deviations = deviations_from(moments, examples.targets[problem.leave_out.judged])
    return Candidate(prior, found.likelihood, found, moments=moments, reference=reference, deviations=deviations)


def train_siblings(problem: Problem, recipe: SmallNetworks, progress: bool = False) -> Siblings:
    """Siblings of the strength that predicts best what they left out."""
    examples, likelihood = problem.examples, problem.likelihood
    assert examples is not None
    assert isinstance(likelihood, GaussianNoise)
    folds = torch.unique(problem.leave_out.folds, return_inverse=True)[1]
    lr = recipe.lr_of_many if problem.few is None else recipe.lr
    whole = replace(examples.whole, targets=examples.whole.targets.view(-1, examples.outputs))
    copies = _NetworkCopies(problem.model, whole, folds, lr, recipe.at_once)
    best, _ = copies.least(recipe.coarse, math.ceil(recipe.long / recipe.shorter), progress)
    strength, squared = copies.least([best * factor for factor in recipe.fine], recipe.long, progress)
    noise = GaussianNoise(likelihood.precision or 1 / max(squared, 1e-10))
    precision = min(PRECISIONS, key=lambda p: abs(math.log(p / (strength * noise.value))))
    network, *others = copies.found[strength]
    return Siblings(noise, network, tuple(others), folds, precision)


def around_siblings(
    problem: Problem, prior: Gaussian, siblings: Siblings, options: Options
) -> tuple[Stack, Float[Tensor, "2 m"]]:
    """Posteriors around the network that saw all examples and around its siblings, as wide as left-out examples say.

    With the means and variances that these have of the first output.
    """
    model, examples, link = problem.model, problem.examples, options.link
    assert examples is not None
    assert isinstance(problem.likelihood, GaussianNoise)
    whole, targets = examples.whole, examples.targets
    around = [around_network(model, prior, TrainingSet([whole], targets, examples.outputs), siblings.noise, link)]
    mean = torch.empty(len(targets), examples.outputs, dtype=torch.float64, device=targets.device)
    covariance = mean.new_empty(*mean.shape, examples.outputs)
    twin, network = copied(model), Replica(model)
    for fold, weights in enumerate(siblings.others):
        kept, out = (siblings.folds != fold).nonzero().flatten(), (siblings.folds == fold).nonzero().flatten()
        twin.load_state_dict(weights, strict=False)
        other = around_network(twin, prior, examples.rows(kept), siblings.noise, link)
        with torch.no_grad(), evaluating(model):
            new = other.jacobian(network, [whole.rows(out)])
            mean[out], covariance[out] = other.choice.best.posterior.moments(new)
        around.append(replace(other, rows=kept))
    left_out, candidates = LeaveOneOut(mean, covariance), [siblings.noise]
    if problem.likelihood.precision is None:
        candidates = [GaussianNoise(siblings.noise.value / factor) for factor in NOISES]
    scored = [(candidate, *calibrate(left_out, candidate, targets, link)) for candidate in candidates]
    noise, calibration, nll, widths = min(scored, key=lambda found: found[2])
    log_probs = left_out.log_probs(noise, targets, calibration, link)

    def calibrated(one: ExactLinear) -> Predictor:
        member = replace(one.choice.best, calibration=calibration, nll=nll, log_probs=log_probs)
        choice = StrengthChoice((member,), widths * len(candidates), "loo", len(PRECISIONS))
        return replace(one, choice=choice, likelihood=noise)

    variance = calibration.tau * covariance.diagonal(dim1=1, dim2=2) + 1 / noise.value
    return Stack(tuple(zip(siblings.shares, map(calibrated, around), strict=True))), torch.stack([mean, variance])[
        :, problem.leave_out.judged, 0
    ]


def averaged_siblings(
    problem: Problem, siblings: Siblings, options: Options
) -> tuple[AveragedNetworks, Float[Tensor, "2 m"]]:
    """The siblings as they are, and the noise of their average.

    The squared error of what was left out is the noise and what the networks disagree by. Of that, the average takes account.
    """
    examples, likelihood, twin = problem.examples, problem.likelihood, copied(problem.model)
    assert examples is not None
    assert isinstance(likelihood, GaussianNoise)
    targets = examples.targets.view(-1, examples.outputs).double()
    shares = torch.tensor(siblings.shares, dtype=torch.float64)
    blocks, outputs = find_blocks(twin, named(problem.prior.mean)), []
    matrices = []
    with torch.no_grad(), evaluating(twin):
        for weights in [siblings.network, *siblings.others]:
            twin.load_state_dict(weights, strict=False)
            matrices.append(read_blocks(twin, blocks))
            outputs.append(examples.whole.outputs(twin).view_as(targets).double())
    found = torch.stack(outputs)
    left_out = torch.stack(outputs[1:]).gather(0, siblings.folds.view(1, -1, 1).expand(1, *targets.shape))[0]
    mean = torch.einsum("k,kno->no", shares.to(found), found)
    disagreement = float(torch.einsum("k,kno->no", shares.to(found), (found - mean).square()).mean())
    squared = float((left_out - targets).square().mean())
    noise = likelihood if likelihood.precision else GaussianNoise(1 / max(squared - disagreement, squared / 2, 1e-10))
    stack = AveragedNetworks(tuple(zip(siblings.shares, matrices, strict=True)), Calibration(0.0), noise, options.link)
    return stack, torch.stack([left_out, torch.full_like(left_out, squared)])[:, problem.leave_out.judged, 0]


class _NetworkCopies:
    """Copies of a network for each strength: one that sees all examples, and one without each fold."""

    def __init__(self, model: nn.Module, whole: Batch, folds: Int[Tensor, " n"], lr: float, at_once: int) -> None:
        self.model, self.whole, self.folds, self.lr, self.at_once = copied(model), whole, folds, lr, at_once
        self.start = {name: p.detach().clone() for name, p in self.model.named_parameters() if p.requires_grad}
        every = torch.ones_like(folds, dtype=torch.bool)
        self.seen: Bool[Tensor, "copies n"] = torch.stack([every, *(folds != label for label in folds.unique())])
        self.found: dict[float, list[dict[str, Tensor]]] = {}

    def least(self, strengths: Sequence[float], steps: int, progress: bool) -> tuple[float, float]:
        """The strength with the least squared error of what was left out, and that error."""
        count = len(self.seen)
        weights = self._train(
            self.seen.repeat(len(strengths), 1), torch.tensor(strengths).repeat_interleave(count), steps, progress
        )
        errors: dict[float, float] = {}
        for i, strength in enumerate(strengths):
            mine = [{name: w[i * count + k] for name, w in weights.items()} for k in range(count)]
            self.found[strength] = mine
            error = float((self._left_out(mine[1:]) - self.whole.targets).square().mean())
            errors[strength] = error if math.isfinite(error) else math.inf
        best = min(errors, key=lambda s: errors[s])
        if math.isinf(errors[best]):
            raise NotFinite("the loss diverges for every strength of the prior: look for very large inputs or targets.")
        return best, errors[best]

    def _left_out(self, weights: list[dict[str, Tensor]]) -> Float[Tensor, "n outputs"]:
        """What each copy says of the examples that it has not seen."""
        self.model.eval()
        with torch.no_grad():
            outputs = [self._outputs(mine, self.whole) for mine in weights]
        return torch.stack(
            [o.masked_fill(seen[:, None], 0) for o, seen in zip(outputs, self.seen[1:], strict=True)]
        ).sum(0)

    def _outputs(self, weights: Mapping[str, Tensor], batch: Batch) -> Float[Tensor, "n outputs"]:
        return batch.outputs(self.model, weights).view_as(batch.targets)

    def _train(
        self, seen: Bool[Tensor, "copies n"], strengths: Float[Tensor, " copies"], steps: int, progress: bool
    ) -> dict[str, Tensor]:
        """Adam on all copies at once, from the network's own weights."""
        self.model.train()
        n, like = self.whole.count, next(iter(self.start.values()))
        shares, decays = 0.5 * seen.to(like), 0.5 * strengths.to(like)

        def objective(batch: Batch, weights: dict[str, Tensor], share: Tensor, decay: Tensor) -> Tensor:
            squared = (self._outputs(weights, batch) - batch.targets).square().sum(1)
            size = torch.stack([w.square().sum() for w in weights.values()]).sum()
            return (share * squared).sum() / batch.count + decay * size / n

        weights = {name: w.expand(len(seen), *w.shape).clone() for name, w in self.start.items()}
        first, second = ({name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2))
        generator = torch.Generator().manual_seed(0)
        for step in track(range(1, steps + 1), steps, "strengths of the prior", progress):
            rows = torch.arange(n) if n <= self.at_once else torch.randperm(n, generator=generator)[: self.at_once]
            batch = self.whole if n <= self.at_once else self.whole.rows(rows)
            slopes = _for_each(grad(partial(objective, batch)), weights, shares[:, rows], decays)
            rate = 0.5 * self.lr * (1 + math.cos(math.pi * step / steps))
            for name, w in weights.items():
                first[name].lerp_(slopes[name], 0.1)
                second[name].lerp_(slopes[name].square(), 0.001)
                scale = (second[name] / (1 - 0.999**step)).sqrt_().add_(1e-8)
                w.addcdiv_(first[name], scale, value=-rate / (1 - 0.9**step))
        return weights


def _for_each(
    function: Callable[..., dict[str, Tensor]], weights: dict[str, Tensor], *rest: Tensor
) -> dict[str, Tensor]:
    """A function of one copy, for all of them in one pass; one after the other where a layer cannot be batched."""
    try:
        return vmap(function, randomness="different")(weights, *rest)
    except RuntimeError:
        count = len(rest[0])
        alone = [function({name: w[i] for name, w in weights.items()}, *(r[i] for r in rest)) for i in range(count)]
        return {name: torch.stack([one[name] for one in alone]) for name in weights}
