"""All steps in one: from a prior and data to a network that knows how sure it is."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, write_blocks
from posterity.checks import admitted
from posterity.curvature import EKFAC, Categorical, Data, Estimator, GaussianNoise, Likelihood, estimate
from posterity.curvature.batches import Workers
from posterity.curvature.provenance import Provenance, sign
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import check_frozen, with_frozen
from posterity.kernel import Calibration, FunctionSpace, Link, Networks, Strength, stacked
from posterity.kernel.jacobian import Rows
from posterity.kernel.kernels import FLOORS
from posterity.laplace import History, Scales, fitted, isotropic, train, update
from posterity.laplace.isotropic import head_name
from posterity.laplace.source import split
from posterity.workflow.few import (
    SHARED,
    SIDE,
    Examples,
    around_mode,
    around_prior,
    fits,
    gather,
    strength_of,
    too_large,
)
from posterity.workflow.fit import Fit
from posterity.workflow.from_trained import calibrated
from posterity.workflow.networks import trained_networks

log = logging.getLogger("posterity")

Head = Literal["keep", "new"]
Criterion = Literal["loo", "evidence", "bayes"]
RATIOS = tuple(10.0 ** (k / 2) for k in range(-8, 9))
"""How much larger a new head's rows may be than those of the prior's: a finite grid, which certificates pay for."""
FEW_LR = 1e-2
"""Of training from scratch on few examples, halved whenever it no longer helps."""
POLISH = 100
"""Steps of L-BFGS that end the training of few examples."""


def learn(
    model: nn.Module,
    data: Data,
    prior: Gaussian | None = None,
    likelihood: Likelihood | None = None,
    *,
    classes: Sequence[str] | None = None,
    head: Head | None = None,
    scales: Criterion | Scales = "loo",
    groups: Tensor | None = None,
    link: Link = "probit",
    estimator: Estimator | None = None,
    head_precision: float = 1.0,
    validation: float | Data | None = None,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
    training: Mapping[str, Any] | None = None,
) -> Fit:
    """Fit a network to data, starting from a prior, and return its posterior.

    Few examples get the exact posterior in function space. After a learned prior it is taken around the *prior's mean*, with
    the strength of the prior, the width and the softness of the predictive chosen by leave-one-out on a declared grid: no
    validation data is needed. Networks trained from the prior's mean stand beside it, with a weight by how well they predict
    examples they had left out; the one that saw all examples is `fit.model`. Without a learned prior the posterior is taken
    around the trained network. Many examples get a structured posterior around the trained network; a tenth of them is held
    out, to stop training and to calibrate.

    Args:
        model: any `nn.Module` whose trainable layers can become blocks. It is trained in place.
        data: a pair of tensors, a `Dataset`, a `DataLoader`, or batches as mappings.
        prior: what is believed before the data; None is an isotropic prior of precision 1 around zero.
        likelihood: what outputs mean: `Categorical()` (default), `GaussianNoise()` (noise learned), `Bernoulli()`.
        classes: the names of the classes. A prior's head is handed down if its card has the same names.
        head: "keep" hands the prior's head down, "new" starts at zero; by default the names of the classes decide.
        scales: "loo", "evidence", "bayes" (the prior's own numbers, nothing chosen), or `Scales(...)` for the Gaussian over
            weights, which implies "bayes".
        groups: which examples belong together (windows of one recording): they are left out together.
        link: how normal outputs become probabilities.
        estimator: of curvature, for the Gaussian over weights; `EKFAC()` by default.
        head_precision: of the prior of a new head, for the Gaussian over weights.
        validation: a share of the data or other data to stop training by. None: a tenth where examples are many, else none.
        batch_size: for training and curvature.
        generator: the source of randomness.
        progress: whether to show bars.
        training: further options of `pt.train` (lr, epochs, …).

    Returns:
        A `Fit`: the trained model, prior, posteriors and history.

    Raises:
        BlockMismatch: if the prior's layers are not the model's.
        FrozenMismatch: if norm statistics or frozen weights are not those of the prior: `prior.write_to(model)` restores them.

    Example:
        >>> fit = pt.learn(model, (x, y), prior=pt.load("watch.safetensors"), classes=names)
        >>> fit.predict(x_new).probs
    """
    data, classes = admitted(model, data, likelihood, estimator, classes)
    likelihood = likelihood or Categorical()
    generator = _shared(generator)
    task = _Task(model, data, prior, likelihood, classes, head, head_precision, batch_size)
    criterion = "bayes" if isinstance(scales, Scales) else scales
    if criterion not in ("loo", "evidence", "bayes"):
        raise ValueError(f'scales is "loo", "evidence", "bayes" or a Scales(...), not "{criterion}"')
    few = task.examples()
    if few is not None and task.learned and criterion != "bayes":
        return task.from_few(
            few,
            criterion,
            groups,
            link,
            None,
            estimator,
            generator,
            progress,
            networks=True,
            training=({} if validation is None else {"validation": validation}) | dict(training or {}),
        )
    used = task.prior
    options: dict[str, Any] = {"batch_size": batch_size, "progress": progress} | dict(training or {})
    space: FunctionSpace | None = None
    if few is not None:
        # Few examples are quick to train on, and what follows speaks of a mode: steps large enough to arrive at one.
        options = {"lr": FEW_LR} | options
    if validation is None and few is None:
        validation = 0.1
    options = {"validation": validation} | options
    history = train(model, data, used, likelihood, generator=generator, **options)
    trained_with = history.likelihood or likelihood
    # The split that was trained with: what was held out stays out of the curvature.
    part, held = split(data, options["validation"], torch.Generator().manual_seed(history.seed))
    calibration = Calibration()
    if space is None and few is not None:
        learn_noise = isinstance(likelihood, GaussianNoise) and likelihood.precision is None
        space = around_mode(model, used, few, trained_with, groups, link, learn_noise)
    final = trained_with if space is None else space.likelihood
    curvature = estimate(
        model,
        part,
        estimator or EKFAC(),
        final,
        blocks=named(used.mean),
        batch_size=batch_size,
        generator=generator,
        progress=progress,
    )
    numbers = scales if isinstance(scales, Scales) else Scales()
    posterior = update(used, model, curvature, numbers)
    if space is None:
        calibration = calibrated(model, posterior, final, part, held, link, batch_size)
    posterior = _signed(posterior, model, history, classes)
    return Fit(model, used, posterior, curvature, numbers, history, final, space, calibration)


def adapt(
    model: nn.Module,
    prior: Gaussian,
    data: Data,
    likelihood: Likelihood | None = None,
    *,
    classes: Sequence[str] | None = None,
    head: Head | None = None,
    scales: Literal["loo", "evidence"] = "loo",
    groups: Tensor | None = None,
    link: Link = "probit",
    shares: Sequence[float] | None = None,
    estimator: Estimator | None = None,
    batch_size: int = 256,
    polish: bool = False,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> Fit:
    """Adapt a network to few examples without training it: linear around the prior's mean, exact from there.

    About a second for a hundred examples. The network is left at the prior's mean, with a new head fitted to the data where
    there is one; predictions are those of the posterior in function space.

    Args:
        model: the network that the prior is for.
        prior: a learned prior.
        data: few examples, as `learn` takes them.
        likelihood: what outputs mean.
        classes: the names of the classes; see `learn`.
        head: "keep" or "new"; see `learn`.
        scales: how the strength of the prior is chosen.
        groups: which examples belong together.
        link: how normal outputs become probabilities.
        shares: shares of the source to choose from; (0.0,) is the isotropic prior around the same mean.
        estimator: of curvature, for the Gaussian over weights.
        batch_size: for the passes over the data.
        polish: whether to train networks from there and average with them, as `learn` does.
        generator: the source of randomness.
        progress: whether to show bars.

    Returns:
        A `Fit` like any other.

    Raises:
        TooLarge: if there are too many examples; `learn` takes any number.

    Example:
        >>> fit = pt.adapt(model, pt.load("watch.safetensors"), (x, y), classes=names)
        >>> fit.predict(x_new).probs
    """
    data, classes = admitted(model, data, likelihood, estimator, classes)
    likelihood = likelihood or Categorical()
    generator = _shared(generator)
    task = _Task(model, data, prior, likelihood, classes, head, 1.0, batch_size)
    few = task.examples()
    if few is None:
        raise too_large(*task.size(), task.new_head is not None)
    return task.from_few(
        few, scales, groups, link, shares, estimator, generator, progress, networks=polish, training={}
    )


class _Task:
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
        self.handed_down = isotropic(model) if prior is None else prior
        self.learned = prior is not None and any(bool(mean.any()) for mean in prior.mean.values())
        new = self._is_new(prior, classes, head)
        self.prior = self.handed_down if prior is None else fitted(prior, model, head_precision, new_head=new)
        if self.learned:
            check_frozen(self.prior, model)
        name = head_name(model)
        kept = name is not None and self.prior.mean.get(name) is self.handed_down.mean.get(name)
        self.new_head = name if self.learned and name in self.prior.mean and not kept else None

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

    def from_few(
        self,
        few: Examples,
        criterion: Literal["loo", "evidence"],
        groups: Tensor | None,
        link: Link,
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
            model, self.prior, self.handed_down, self.new_head, few, likelihood, criterion, groups, link, shares
        )
        used = self.at_strength(space, strength_of(space))
        self.write(used, space)
        beside = None
        if networks and criterion == "loo" and not isinstance(likelihood, GaussianNoise):
            beside = self._networks(space, few, groups, progress)
        history = None
        if beside is not None:
            space = replace(space, choice=stacked(space.choice, beside, groups))
            _, trained = beside.weights[0]
            model.load_state_dict(write_blocks(find_blocks(model, named(trained)), trained), strict=False)
        if networks and (beside is None or training):
            options: dict[str, Any] = {"batch_size": self.batch_size, "progress": progress, "validation": None}
            options |= _from_there(likelihood) | dict(training)
            history = train(model, self.data, used, likelihood, generator=generator, **options)
        curvature = estimate(
            model,
            self.data,
            estimator or EKFAC(),
            space.likelihood,
            blocks=named(used.mean),
            batch_size=self.batch_size,
            generator=generator,
            progress=progress,
        )
        posterior = _signed(update(used, model, curvature), model, history, self.classes)
        return Fit(model, used, posterior, curvature, Scales(), history, space.likelihood, space)

    def _networks(self, space: FunctionSpace, few: Examples, groups: Tensor | None, progress: bool) -> Networks | None:
        """Trained networks, held by the prior as strongly as the best posterior is."""
        strength = space.choice.best.posterior.strength
        assert strength is not None
        strength = replace(strength, floor=min(strength.floor, FLOORS[-1]))
        prior = self.at_strength(space, strength)
        return trained_networks(self.model, prior, few, self.likelihood, groups, space.link, progress)

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


def _from_there(likelihood: Likelihood) -> dict[str, Any]:
    """Training that begins near its mode: L-BFGS on all examples, or the usual way where the noise is learned on it."""
    if isinstance(likelihood, GaussianNoise):
        return {"start": "model"}
    return {"start": "model", "epochs": 0, "polish_steps": POLISH}


def _signed(posterior: Gaussian, model: nn.Module, history: History | None, classes: Sequence[str] | None) -> Gaussian:
    """The posterior with the names of its classes, what its network computes with beside the blocks, and all it has seen."""
    # What was held out decided when to stop: it has been seen too, and training tells so.
    seen = posterior.provenance if history is None else posterior.provenance.joined(history.provenance)
    seed = None if history is None else history.seed
    names = () if classes is None else tuple(classes)
    card = replace(posterior.card, seed=seed, classes=names, provenance=seen)
    return with_frozen(replace(posterior, card=card), model)


def _shared(generator: torch.Generator | None) -> torch.Generator:
    """One generator for all steps, the same for all workers."""
    device = None if generator is None else generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    return torch.Generator().manual_seed(Workers.here().first(seed))
