"""Few examples and no source: networks that leave a part of the examples out choose how strong the prior is, and how sure to be.

Features that were trained have seen every label: leaving an example out of the *linearised* network is too kind to it, and it can
judge no strength of the prior but the one trained with. Networks that never saw the example are honest on both. They are small
here, and all of them train together, in one batched pass a step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from posterity.bars import track
from posterity.blocks import evaluating, find_blocks, named
from posterity.curvature import GaussianNoise, Likelihood
from posterity.curvature.batches import Batch
from posterity.gaussian import Gaussian
from posterity.kernel import Choice, FunctionSpace, LeftOut, Link, Member, calibrate, folds_of
from posterity.workflow.few import Examples, around_network

COARSE = tuple(10.0**k for k in range(-5, 3))
"""Strengths of the prior, next to a unit noise in a regression."""
FINE = (0.3, 1.0, 3.0)
"""Multiples of the best of them, which are trained for longer."""
NOISES = tuple(10.0 ** (k / 20) for k in range(-40, 11))
"""Variances of the noise, in units of the squared errors that were left out."""
PRECISIONS = tuple(10.0 ** (k / 4) for k in range(-48, 49))
"""Of the prior in the end: a finite grid, which certificates pay for."""
SHORT, LONG, LR, AT_ONCE = 500, 2500, 1e-2, 512
"""Steps of Adam for coarse and for fine strengths, with a rate that falls to zero, and examples a step."""
LARGEST = 20_000
"""Weights of a network for which dozens of copies are cheap."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """What networks with left-out examples say: the strength, the noise, and a network that saw everything."""

    precision: float
    """Of the isotropic prior."""
    noise: GaussianNoise | None
    """Under which the network was trained; None for classes."""
    network: Mapping[str, Tensor]
    parts: tuple[tuple[Int[Tensor, " kept"], Int[Tensor, " out"], Mapping[str, Tensor]], ...]
    """For each fold: what was kept, what was left out, and its network's weights."""


def suits(model: nn.Module, prior: Gaussian) -> bool:
    """Whether the network is small, and nothing but the weights of its blocks would have to be trained."""
    blocks = find_blocks(model, named(prior.mean))
    inside = {full for block in blocks.values() for full in block.parameters.values()}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    moving = any(getattr(module, "track_running_stats", False) for module in model.modules())
    return trained <= inside and not moving and sum(p.numel() for p in model.parameters()) <= LARGEST


def choose_by_folds(
    model: nn.Module,
    examples: Examples,
    likelihood: Likelihood,
    groups: Tensor | None = None,
    progress: bool = True,
) -> Chosen:
    """The strength whose networks predict best what they left out."""
    unit = GaussianNoise(1.0) if isinstance(likelihood, GaussianNoise) and likelihood.precision is None else likelihood
    folds = folds_of(examples.targets, groups).to(examples.targets.device)
    copies = _Copies(model, Batch.joined(examples.inputs), unit, folds)
    best, _ = copies.least(COARSE, SHORT, progress)
    strength, errors = copies.least([best * factor for factor in FINE], LONG, progress)
    noise: GaussianNoise | None = None
    precision = strength
    if isinstance(likelihood, GaussianNoise):
        noise = GaussianNoise(likelihood.precision or 1 / max(errors, 1e-10))
        precision = strength * noise.value / unit.value  # type: ignore[attr-defined]
    precision = min(PRECISIONS, key=lambda p: abs(math.log(p / precision)))
    network, *left = copies.weights(strength)
    parts = [((folds != f).nonzero().flatten(), (folds == f).nonzero().flatten()) for f in folds.unique()]
    return Chosen(precision, noise, network, tuple((k, o, w) for (k, o), w in zip(parts, left, strict=True)))


def around_chosen(
    model: nn.Module,
    prior: Gaussian,
    chosen: Chosen,
    examples: Examples,
    likelihood: Likelihood,
    link: Link,
) -> FunctionSpace:
    """Posteriors around the network that saw everything and around its siblings, as wide and as noisy as left-out examples say.

    The first counts as much as the others together.
    """
    whole, targets = Batch.joined(examples.inputs), examples.targets
    trained_with = chosen.noise or likelihood
    mean = torch.empty(len(targets), examples.outputs, dtype=torch.float64, device=targets.device)
    covariance = mean.new_empty(*mean.shape, examples.outputs)
    siblings, twin = [], copy.deepcopy(model)
    for kept, out, weights in chosen.parts:
        twin.load_state_dict(weights, strict=False)
        part = Examples([whole.rows(kept)], targets[kept], examples.outputs)
        siblings.append(around_network(twin, prior, part, trained_with, link))
        with torch.no_grad(), evaluating(twin):
            new = siblings[-1].jacobian(twin, [whole.rows(out)])
            mean[out], covariance[out] = siblings[-1].choice.best.posterior.moments(new)
    left_out, candidates = LeftOut(mean, covariance), [trained_with]
    if isinstance(likelihood, GaussianNoise) and likelihood.precision is None:
        assert chosen.noise is not None
        candidates = [GaussianNoise(chosen.noise.value / factor) for factor in NOISES]
    scored = [(candidate, *calibrate(left_out, candidate, targets, link)) for candidate in candidates]
    final, calibration, nll, options = min(scored, key=lambda found: found[2])
    log_probs = left_out.log_probs(final, targets, calibration, link)

    def calibrated(space: FunctionSpace, weight: float) -> FunctionSpace:
        member = Member(weight, space.choice.best.posterior, calibration, nll, log_probs)
        choice = Choice((member,), options * len(candidates), "loo", len(PRECISIONS))
        return replace(space, choice=choice, likelihood=final)

    first = around_network(model, prior, Examples([whole], targets, examples.outputs), trained_with, link)
    others = [replace(calibrated(s, 0.5 / len(siblings)), blocks=first.blocks) for s in siblings]
    return replace(calibrated(first, 0.5), siblings=tuple(others))


class _Copies:
    """Copies of a network for each strength: one that sees all examples, and one without each fold."""

    def __init__(self, model: nn.Module, whole: Batch, likelihood: Likelihood, folds: Int[Tensor, " n"]) -> None:
        self.model, self.whole, self.likelihood, self.folds = copy.deepcopy(model), whole, likelihood, folds
        self.start = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        labels = folds.unique()
        every = torch.ones_like(folds, dtype=torch.bool)
        self.seen: Bool[Tensor, "copies n"] = torch.stack([every, *(folds != label for label in labels)])
        self.found: dict[float, list[dict[str, Tensor]]] = {}

    def weights(self, strength: float) -> list[dict[str, Tensor]]:
        """Of the copy that saw everything, then of the others."""
        return self.found[strength]

    def least(self, strengths: tuple[float, ...] | list[float], steps: int, progress: bool) -> tuple[float, float]:
        """The strength of least NLL of what was left out, and its mean squared residual."""
        count = len(self.seen)
        weights = self._train(
            self.seen.repeat(len(strengths), 1), torch.tensor(strengths).repeat_interleave(count), steps, progress
        )
        scores: dict[float, tuple[float, float]] = {}
        for i, strength in enumerate(strengths):
            mine = [{name: w[i * count + k] for name, w in weights.items()} for k in range(count)]
            self.found[strength] = mine
            outputs = self._left_out(mine[1:])
            nll = float(self.likelihood.nll(outputs, self.whole.targets))
            squared = float(self.likelihood.residual(outputs, self.whole.targets).square().mean())
            scores[strength] = (nll if math.isfinite(nll) else math.inf, squared)
        best = min(scores, key=lambda s: scores[s][0])
        return best, scores[best][1]

    def _left_out(self, weights: list[dict[str, Tensor]]) -> Float[Tensor, "n outputs"]:
        """What each copy says of the examples that it has not seen."""
        self.model.eval()
        found: list[Tensor] = []
        with torch.no_grad():
            for seen, mine in zip(self.seen[1:], weights, strict=True):
                outputs, _ = self.likelihood.check(self._outputs(mine, self.whole), self.whole.targets)
                found.append(outputs.masked_fill(seen[:, None], 0))
        return torch.stack(found).sum(0)

    def _outputs(self, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
        found = functional_call(self.model, dict(weights), batch.positional, dict(batch.named))
        return found if isinstance(found, Tensor) else found.logits

    def _train(
        self, seen: Bool[Tensor, "copies n"], strengths: Float[Tensor, " copies"], steps: int, progress: bool
    ) -> dict[str, Tensor]:
        """Adam on all copies at once, each example weighted by whether a copy may see it."""
        self.model.train()
        n = self.whole.count
        size = min(AT_ONCE, n)
        like = next(iter(self.start.values()))
        shares, strengths = seen.to(like) / seen.sum(1, keepdim=True).to(like), strengths.to(like)

        def objective(batch: Batch, weights: dict[str, Tensor], share: Tensor, decay: Tensor) -> Tensor:
            outputs, targets = self._outputs(weights, batch), batch.targets
            outputs = outputs if outputs.ndim > 1 else outputs[:, None]
            # Its gradient is that of the NLL, example by example: the sum alone could not leave any out.
            slope = self.likelihood.residual(
                outputs, targets.view_as(outputs) if targets.is_floating_point() else targets
            )
            return (outputs * slope.detach() * share[:, None]).sum() * (n / batch.count) + decay * sum(
                w.square().sum() for w in weights.values()
            )

        weights = {name: w.expand(len(seen), *w.shape).clone() for name, w in self.start.items()}
        decays = 0.5 * strengths / seen.sum(1).to(like)
        first, second = ({name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2))
        generator = torch.Generator().manual_seed(0)
        for step in track(range(1, steps + 1), steps, "strengths of the prior", progress):
            rows = torch.arange(n) if size == n else torch.randperm(n, generator=generator)[:size]
            batch = self.whole if size == n else self.whole.rows(rows)
            slopes = _for_each(grad(partial(objective, batch)), weights, shares[:, rows], decays)
            rate = 0.5 * LR * (1 + math.cos(math.pi * step / steps))
            for name, w in weights.items():
                first[name].lerp_(slopes[name], 0.1)
                second[name].lerp_(slopes[name].square(), 0.001)
                size_of = (second[name] / (1 - 0.999**step)).sqrt_().add_(1e-8)
                w.addcdiv_(first[name], size_of, value=-rate / (1 - 0.9**step))
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
