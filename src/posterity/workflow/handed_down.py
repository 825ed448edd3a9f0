"""After a prior: which head, how strong, and the posterior of few examples with trained networks beside it.

A posterior around the prior's mean sees the network as linear. Where lower layers have to change a lot, training does better, and
nobody can tell in advance: so both are there, and examples that were left out decide how much each counts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks import Block, find_blocks, named, write_blocks
from posterity.checks import Admitted
from posterity.curvature import EKFAC, Categorical, Data, Estimator, GaussianNoise, Likelihood, estimate
from posterity.curvature.batches import Workers
from posterity.curvature.provenance import Provenance, looks_new, past_of, sign
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import check_frozen, with_frozen
from posterity.kernel import (
    BlockFrame,
    FunctionSpace,
    Inference,
    Linearised,
    Link,
    Networks,
    PerOutput,
    Shared,
    Strength,
    choose,
    jacobian,
    stacked,
)
from posterity.kernel.choose import Criterion, unit
from posterity.kernel.folds import folds_of, judged
from posterity.kernel.gradients import Rows
from posterity.kernel.kernels import FLOORS, SHARED, SIDE, Examples, fits, gather
from posterity.laplace import History, Scales, fitted, isotropic, train, update
from posterity.laplace.prior import head_name
from posterity.workflow.few import regression
from posterity.workflow.fit import Fit
from posterity.workflow.fold_networks import EXAMPLES, FROM_PRIOR, MOST, SMALL, suits, trained_networks

log = logging.getLogger("posterity")
Head = Literal["keep", "new"]
RATIOS = tuple(10.0 ** (k / 2) for k in range(-8, 9))
"""How much larger a new head's rows may be than those of the prior's: a finite grid, which certificates pay for."""
ENOUGH = 100
"""Examples from which on a prior that nobody gave has the precision 1."""
POLISH = 100
"""Steps of L-BFGS that end the training of few examples."""
MOST_ROWS, COMBINED = 100, 2
"""Rows of a prior's head beyond which random combinations of them stand for all, and how many: for ResNet-50's last stage two are
within a fifth of the kernel of thirty-two, four within a seventh at twice the price."""


class HandedDown:
    """What a prior means for a network and its data: which head, and whether anything was learned before."""

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        prior: Gaussian | None,
        likelihood: Likelihood,
        classes: Sequence[str] | None,
        head: Head | None,
        head_precision: float,
        batch_size: int,
    ) -> None:
        if head not in (None, "keep", "new"):
            raise ValueError(f'head is "keep", "new" or None, not "{head}"')
        self.model, self.data, self.likelihood, self.batch_size = model, data, likelihood, batch_size
        self.classes = classes
        self.handed_down = isotropic(model, self._usual_precision()) if prior is None else prior
        self.learned = prior is not None and any(bool(mean.any()) for mean in prior.mean.values())
        new = self._is_new(prior, classes, head)
        self.prior = self.handed_down if prior is None else fitted(prior, model, head_precision, new_head=new)
        if self.learned:
            check_frozen(self.prior, model)
        name = head_name(model)
        kept = name is not None and self.prior.mean.get(name) is self.handed_down.mean.get(name)
        self.new_head = name if self.learned and name in self.prior.mean and not kept else None

    def _usual_precision(self) -> float:
        """Of a prior that nobody gave: 1, and less with fewer than a hundred examples.

        Under a precision of 1, ten examples cannot hold the weights of a network away from zero: it says the same of all inputs.
        """
        if Workers.here().size > 1:
            return 1.0
        few = gather(self.model, self.data, self.likelihood, self.batch_size, ENOUGH)
        return 1.0 if few is None else few.count / ENOUGH

    def _is_new(self, prior: Gaussian | None, classes: Sequence[str] | None, head: Head | None) -> bool | None:
        """Whether the head starts anew: as the user says, else by the names of the classes, else where its size differs."""
        if head is not None:
            return head == "new"
        if prior is None or not isinstance(self.likelihood, Categorical) or not self.learned:
            return None
        same = classes is not None and tuple(classes) == prior.card.classes
        if not same:
            log.info("the head is new: the prior's card does not name the classes of this task (head='keep' keeps it)")
        return not same

    @cached_property
    def seen(self) -> Provenance:
        """The examples of the task."""
        return Provenance.of(self.data)

    def size(self) -> tuple[int, int]:
        """(examples, outputs) as far as they can be told without reading everything."""
        length = getattr(self.data, "__len__", None)
        pair = isinstance(self.data, (tuple, list)) and len(self.data) == 2
        count = len(self.data[0]) if pair else (length() if length else 0)  # type: ignore[index]
        return count, list(self.prior.mean.values())[-1].shape[0]

    def examples(self) -> Examples | None:
        """All examples, if they are few enough for the exact posterior."""
        if Workers.here().size > 1:
            return None
        most = SHARED if self.new_head is not None else SIDE
        found = gather(self.model, self.data, self.likelihood, self.batch_size, most)
        if found is None or not fits(found.count, found.outputs, self.new_head is not None):
            return None
        return found

    def untouched(self) -> Examples | None:
        """All examples, where the network is small and as torch starts it, and they are few and the same at each reading."""
        new = not past_of(self.model).count and looks_new(self.model) and suits(self.model, self.prior)
        if not new:
            return None
        return self.up_to(MOST if suits(self.model, self.prior, SMALL) else EXAMPLES)

    def up_to(self, most: int) -> Examples | None:
        """All examples, where they are no more than that, the same at each reading, and all here."""
        if Workers.here().size > 1:
            return None
        found = gather(self.model, self.data, self.likelihood, self.batch_size, most)
        return found if found is not None and self.seen.is_known else None

    def from_few(
        self,
        few: Examples,
        criterion: Criterion,
        groups: Tensor | None,
        link: Link,
        inference: Inference | None,
        shares: Sequence[float] | None,
        estimator: Estimator | None,
        generator: torch.Generator,
        progress: bool,
        *,
        networks: bool,
        training: Mapping[str, Any],
    ) -> Fit:
        """The posterior around the prior's mean, and trained networks beside it if they are wanted."""
        model, likelihood = self.model, self.likelihood
        space = around_prior(
            model,
            self.prior,
            self.handed_down,
            self.new_head,
            few,
            likelihood,
            criterion,
            groups,
            link,
            shares,
            inference,
        )
        used = self.at_strength(space, strength_of(space))
        self.write(used, space)
        beside = None
        if networks and criterion == "loo" and not isinstance(likelihood, GaussianNoise):
            beside = self._networks(space, few, groups, progress)
        history = None
        if beside is not None:
            _, together = judged(folds_of(few.targets, groups), groups)
            space = replace(space, choice=stacked(space.choice, beside, together))
            _, trained = beside.weights[0]
            model.load_state_dict(write_blocks(find_blocks(model, named(trained)), trained), strict=False)
            sign(model, used.provenance.joined(self.seen))
        if networks and (beside is None or training):
            options: dict[str, Any] = {"batch_size": self.batch_size, "progress": progress, "validation": None}
            options |= _from_there(likelihood) | dict(training)
            history = train(model, Admitted(self.data), used, likelihood, generator=generator, **options)
        curvature = estimate(
            model,
            Admitted(self.data),
            estimator or EKFAC(),
            space.likelihood,
            blocks=named(used.mean),
            batch_size=self.batch_size,
            generator=generator,
            progress=progress,
        )
        posterior = signed(update(used, model, curvature), model, history, self.classes)
        return Fit(model, used, posterior, curvature, Scales(), history, space.likelihood, space)

    def _networks(self, space: FunctionSpace, few: Examples, groups: Tensor | None, progress: bool) -> Networks | None:
        """Trained networks, held by the prior as strongly as the best posterior is."""
        prior = self.at_strength(space, _of_best(space))
        return trained_networks(
            self.model, prior, few, self.likelihood, FROM_PRIOR, groups, space.link, progress=progress
        )

    def at_strength(self, space: FunctionSpace, strength: Strength) -> Gaussian:
        """The prior with the numbers that were chosen, for a network with weights of its own.

        A kernel that all classes share sees the layers below through the prior's head; the network sees them through its new
        one. Their sizes differ, and the numbers are scaled so that both change outputs alike.
        """
        options = space.choice.strengths
        if self.new_head is None:
            adjusted = self.prior.adjusted(strength.share, strength.floor)
        else:
            new, old = self._fitted_head(space, strength), space.point[self.new_head].double()
            ratio = new[:, :-1].square().sum(1).mean() / old[:, :-1].square().sum(1).mean().clamp_min(1e-12)
            size = min(RATIOS, key=lambda r: abs(math.log(r) - math.log(max(float(ratio), 1e-12))))
            options *= len(RATIOS)
            adjusted = self.prior.adjusted(strength.share * size, strength.floor * size)
            head = self.prior.restricted([self.new_head]).adjusted(floor=strength.head)
            adjusted = replace(adjusted, precision=dict(adjusted.precision) | dict(head.precision))
        # A certificate on this data pays for the choice.
        chosen = adjusted.provenance.chose("the strength of the prior", options=options, by=self.seen)
        return replace(adjusted, card=replace(adjusted.card, provenance=chosen))

    def _fitted_head(self, space: FunctionSpace, strength: Strength) -> Tensor:
        """A new head's weights on the features as the prior's mean has them."""
        assert self.new_head is not None
        linearised = space.choice.best.posterior.of
        alone = linearised.posterior(replace(strength, share=0.0, floor=float("inf")))
        features = linearised.train.blocks[self.new_head]
        assert isinstance(features, Rows)
        return alone.latent.weights.mT @ features.a.double() / strength.head

    def write(self, prior: Gaussian, space: FunctionSpace) -> None:
        """The prior's mean, and a new head's own fit, into the network."""
        mean = dict(prior.mean)
        if self.new_head is not None:
            mean[self.new_head] = self._fitted_head(space, strength_of(space)).to(mean[self.new_head])
        replace(prior, mean=mean).write_to(self.model)
        sign(self.model, prior.provenance.joined(self.seen))


def around_prior(
    model: nn.Module,
    prior: Gaussian,
    handed_down: Gaussian,
    head: str | None,
    examples: Examples,
    likelihood: Likelihood,
    criterion: Criterion = "loo",
    groups: Tensor | None = None,
    link: Link = "probit",
    shares: Sequence[float] | None = None,
    inference: Inference | None = None,
    still: bool = True,
) -> FunctionSpace:
    """The posterior of the network made linear at the *prior's mean*: no training, and no label in its kernel.

    `prior` fits the network; `handed_down` is the same as it came, whose head says which features are worth reading where
    the network's own head is new (`head`). `still` says whether that head alone is a candidate.
    """
    blocks = find_blocks(model, named(prior.mean))
    frames = {name: BlockFrame.of(prior.precision[name]) for name in blocks}
    point = dict(prior.mean)
    if head is not None:
        point[head] = _directions(handed_down, head, prior.mean[head])
    blocks = _resized(blocks, point)
    train = jacobian(model, blocks, point, frames, examples.inputs)
    kernel = PerOutput(frames) if head is None else Shared(frames, head)
    linearised = Linearised(kernel, train, examples.targets, likelihood, examples.outputs, {} if head is None else None)
    if isinstance(likelihood, GaussianNoise):
        return regression(linearised, blocks, point, frames, link, shares)
    choice = choose(linearised, criterion, groups, link, shares, inference, still)
    return FunctionSpace(blocks, point, frames, choice, likelihood, link)


def _directions(handed_down: Gaussian, head: str, like: Tensor) -> Tensor:
    """Directions of the features through which the layers below are seen: the rows of the prior's own head.

    Of a head with many rows, such as ImageNet's, a few random combinations stand for all: each direction costs a backward pass
    for every example, and the kernel is the same on average. A prior without a head leaves all directions equal: as many
    random ones stand for them.
    """
    rows, generator = handed_down.mean.get(head), torch.Generator().manual_seed(0)
    if rows is not None and rows.shape[1] == like.shape[1] and bool(rows.any()):
        if len(rows) <= MOST_ROWS:
            return rows
        signs = 2.0 * torch.randint(2, (COMBINED, len(rows)), generator=generator) - 1
        return signs.to(rows) @ rows / len(rows) ** 0.5
    draw = torch.randn(max(10, like.shape[0]), like.shape[1], generator=generator)
    return draw.to(like) / like.shape[1] ** 0.5


def _resized(blocks: dict[str, Block], point: dict[str, Tensor]) -> dict[str, Block]:
    """Blocks with as many outputs as the point has: a head may read in more directions than the task has classes."""
    resized = {}
    for name, block in blocks.items():
        out = point[name].shape[0]
        layer = block.layer if out == block.layer.out else replace(block.layer, out=out)
        resized[name] = replace(block, layer=layer)
    return resized


def strength_of(space: FunctionSpace) -> Strength:
    """The strength for a network that is used by itself, and for the Gaussian around it.

    Never weaker than a unit Gaussian: an average over posteriors bears priors that a single mode overfits under.
    """
    best = space.choice.for_mode or _of_best(space)
    return Strength(best.share, max(best.floor, 1.0), max(best.head, 1.0))


def _of_best(space: FunctionSpace) -> Strength:
    """The best posterior's, with the largest floor of the usual grid where it leaves all but a new head as it is."""
    best = space.choice.best.posterior
    assert best.strength is not None
    if math.isinf(best.strength.floor):
        return replace(best.strength, floor=FLOORS[-1] * unit(best.of, best.strength.share))
    return best.strength


def _from_there(likelihood: Likelihood) -> dict[str, Any]:
    """Training that begins near its mode: L-BFGS on all examples, or the usual way where the noise is learned on it."""
    if isinstance(likelihood, GaussianNoise):
        return {"start": "model"}
    return {"start": "model", "epochs": 0, "polish_steps": POLISH}


def signed(posterior: Gaussian, model: nn.Module, history: History | None, classes: Sequence[str] | None) -> Gaussian:
    """The posterior with the names of its classes, what its network computes with beside the blocks, and all it has seen."""
    # What was held out decided when to stop: it has been seen too, and training tells so.
    seen = posterior.provenance if history is None else posterior.provenance.joined(history.provenance)
    seed = None if history is None else history.seed
    names = () if classes is None else tuple(classes)
    card = replace(posterior.card, seed=seed, classes=names, provenance=seen)
    return with_frozen(replace(posterior, card=card), model)
