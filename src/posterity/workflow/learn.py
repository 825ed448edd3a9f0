"""All steps in one: from a prior and data to a network that knows how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, write_blocks
from posterity.checks import Admitted, admitted, check_groups, check_prior
from posterity.curvature import EKFAC, Categorical, Data, Estimator, GaussianNoise, Likelihood, estimate
from posterity.curvature.batches import Workers
from posterity.curvature.provenance import past_of, sign, together
from posterity.gaussian import Gaussian
from posterity.kernel import Calibration, FunctionSpace, Inference, Link, Networks, folds_of
from posterity.kernel.folds import STAYS
from posterity.kernel.kernels import Examples
from posterity.laplace import History, Scales, isotropic, train, update
from posterity.laplace.run import split
from posterity.pacbayes import tune
from posterity.workflow.few import around_mode, too_large
from posterity.workflow.fit import Fit
from posterity.workflow.fold_networks import MOST, SMALL, from_scratch, suits, trained_networks
from posterity.workflow.folds import PRECISIONS, around_siblings, averaged_siblings, train_siblings
from posterity.workflow.from_trained import calibrated, usual_spread
from posterity.workflow.handed_down import HandedDown, Head, signed

Criterion = Literal["loo", "elbo", "evidence", "bayes", "catoni", "mcallester"]
CRITERIA: tuple[Criterion, ...] = ("loo", "elbo", "evidence", "bayes", "catoni", "mcallester")
FEW_LR = 1e-2
"""Of training from scratch on few examples, halved whenever it no longer helps."""


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
    inference: Inference | None = None,
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
    examples they had left out; the one that saw all examples is `fit.model`. Without a prior the posterior is taken around the
    trained network; for a regression by a small network, siblings that leave a fifth out each choose the strength of an isotropic
    prior, the noise, and how wide to be; beyond 3,000 examples they are averaged as they are. With up to 5,000 examples (a small
    network: 50,000), a classifier that is new and not large is trained six times: on all examples and without each fifth.
    Predictions are the average, as soft as left-out examples say, and `.unknown` comes from the posterior around the first.
    More examples get a structured posterior around the trained network; a tenth of them is held out, to stop training and to
    calibrate.

    Args:
        model: any `nn.Module` whose trainable layers can become blocks. It is trained in place.
        data: a pair of tensors, a `Dataset`, a `DataLoader`, or batches as mappings.
        prior: what is believed before the data; None is an isotropic prior around zero, of precision 1 (n/100 with n < 100
            examples) where nothing chooses it.
        likelihood: what outputs mean: `Categorical()` (default), `GaussianNoise()` (noise learned), `Bernoulli()`.
        classes: the names of the classes. A prior's head is handed down if its card has the same names.
        head: "keep" hands the prior's head down, "new" starts at zero; by default the names of the classes decide.
        scales: how the strength of the prior is chosen: "loo", "evidence", "elbo" (by variational inference) or "bayes" (the
            prior's own numbers, nothing chosen). "catoni" and "mcallester" take the Gaussian over weights of least PAC-Bayes
            bound estimate, and predict with it; `Scales(...)` gives its numbers.
        groups: which examples belong together (windows of one recording): they are left out together.
        link: how normal outputs become probabilities.
        inference: in function space after a learned prior: `Laplace()` (the default) or `Variational()`.
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
    check_prior(prior)
    data, classes = admitted(model, data, likelihood, estimator, classes)
    likelihood = likelihood or Categorical()
    generator = _shared(generator)
    task = HandedDown(model, data, prior, likelihood, classes, head, head_precision, batch_size)
    criterion: Criterion = "bayes" if isinstance(scales, Scales) else scales
    if criterion not in CRITERIA:
        raise ValueError(f"scales is one of {', '.join(map(repr, CRITERIA))} or a Scales(...), not {criterion!r}")
    few = task.examples()
    if few is not None:
        check_groups(groups, few.count)
    options = ({} if validation is None else {"validation": validation}) | dict(training or {})
    if few is not None and task.learned and criterion in ("loo", "elbo", "evidence"):
        return task.from_few(
            few,
            criterion,
            groups,
            link,
            inference,
            None,
            estimator,
            generator,
            progress,
            networks=True,
            training=options,
        )
    made = _Training(task, few, prior is None, criterion, groups, link, options, generator, progress).made()
    used, space, networks = made.prior, made.space, made.networks
    curvature = estimate(
        model,
        Admitted(made.part),
        estimator or EKFAC(),
        made.likelihood,
        blocks=named(used.mean),
        batch_size=batch_size,
        generator=generator,
        progress=progress,
    )
    numbers, bounded = scales if isinstance(scales, Scales) else Scales(), False
    if criterion in ("catoni", "mcallester"):
        numbers, bounded = tune(used, model, curvature, criterion).scales, True
    posterior = update(used, model, curvature, numbers)
    calibration = Calibration()
    if networks is not None:
        usual = usual_spread(model, posterior, made.likelihood, data, batch_size)
        calibration = replace(networks.calibration, usual=usual)
    elif space is None and not bounded:
        calibration = calibrated(model, posterior, made.likelihood, made.part, made.held, link, batch_size)
    posterior = signed(posterior, model, made.history, classes)
    return Fit(model, used, posterior, curvature, numbers, made.history, made.likelihood, space, calibration, networks)


@dataclass(frozen=True, eq=False)
class _Made:
    """What training made. The weights are in the network itself."""

    prior: Gaussian
    likelihood: Likelihood
    """With the noise that was learned."""
    part: Data
    """The examples that were learned from."""
    held: Data | None = None
    space: FunctionSpace | None = None
    networks: Networks | None = None
    history: History | None = None


@dataclass(frozen=True, eq=False)
class _Training:
    """Training without the exact posterior around a learned prior's mean: the first way that suits network, data and options."""

    task: HandedDown
    few: Examples | None
    no_prior: bool
    criterion: Criterion
    groups: Tensor | None
    link: Link
    options: Mapping[str, Any]
    """Of `pt.train`, as the user gave them."""
    generator: torch.Generator
    progress: bool

    def made(self) -> _Made:
        return self._siblings() or self._networks() or self._one()

    @property
    def _free(self) -> bool:
        """A network that is trained as the user says, or stopped by other data, has none beside it: they would be others."""
        return self.criterion == "loo" and not self.options and not self.task.learned

    def _siblings(self) -> _Made | None:
        """A regression by a small network: siblings that leave a fifth out each choose strength, noise and width."""
        task, likelihood = self.task, self.task.likelihood
        if not isinstance(likelihood, GaussianNoise) or not self._free or not self.no_prior:
            return None
        if not suits(task.model, task.prior, SMALL):
            return None
        examples = task.up_to(MOST) if self.few is None else self.few
        if examples is None:
            return None
        check_groups(self.groups, examples.count)
        if bool(
            (folds_of(examples.targets, self.groups) == STAYS).all()
        ):  # one example, or one group: no part to leave out
            return None
        siblings = train_siblings(task.model, examples, likelihood, self.groups, self.progress)
        if siblings is None:
            return None
        started = past_of(task.model)  # siblings begin at the network's own weights
        task.model.load_state_dict(siblings.network, strict=False)
        prior = isotropic(task.model, siblings.precision)
        seen = prior.provenance.chose("the strength of the prior", options=len(PRECISIONS), by=task.seen)
        prior = replace(prior, card=replace(prior.card, provenance=seen))
        sign(task.model, together([started, seen, task.seen]))
        if self.few is None:
            networks, noise = averaged_siblings(task.model, siblings, examples, likelihood)
            return _Made(prior, noise, task.data, networks=networks)
        space = around_siblings(task.model, prior, siblings, self.few, likelihood, self.link)
        return _Made(prior, space.likelihood, task.data, space=space)

    def _networks(self) -> _Made | None:
        """Classes and a network that is new: six of it, on all examples and without each fifth."""
        task = self.task
        if isinstance(task.likelihood, GaussianNoise) or not self._free:
            return None
        examples = task.untouched()
        if examples is None:
            return None
        check_groups(self.groups, examples.count)
        recipe, seed = from_scratch(examples.count), int(torch.randint(2**31, (), generator=self.generator))
        networks = trained_networks(
            task.model, task.prior, examples, task.likelihood, recipe, self.groups, self.link, seed, self.progress
        )
        if networks is None:
            return None
        started, (_, weights) = past_of(task.model), networks.weights[0]
        task.model.load_state_dict(write_blocks(find_blocks(task.model, named(weights)), weights), strict=False)
        sign(task.model, together([started, task.prior.provenance, task.seen]))
        return _Made(task.prior, task.likelihood, task.data, networks=networks)

    def _one(self) -> _Made:
        """One network, as the options say; of many examples a tenth stops it."""
        task, few = self.task, self.few
        options: dict[str, Any] = {"batch_size": task.batch_size, "progress": self.progress, "validation": None}
        # Few examples are quick to train on, and what follows speaks of a mode: steps large enough to arrive at one.
        options |= {"validation": 0.1} if few is None else {"lr": FEW_LR}
        options |= self.options
        data = Admitted(task.data)
        history = train(task.model, data, task.prior, task.likelihood, generator=self.generator, **options)
        likelihood = history.likelihood or task.likelihood
        # The split that was trained with: what was held out stays out of the curvature.
        part, held = split(task.data, options["validation"], torch.Generator().manual_seed(history.seed))
        space = None
        if few is not None and self.criterion not in ("catoni", "mcallester"):
            learn_noise = isinstance(task.likelihood, GaussianNoise) and task.likelihood.precision is None
            space = around_mode(task.model, task.prior, few, likelihood, self.groups, self.link, learn_noise)
            likelihood = space.likelihood
        return _Made(task.prior, likelihood, part, held, space, history=history)


def adapt(
    model: nn.Module,
    prior: Gaussian,
    data: Data,
    likelihood: Likelihood | None = None,
    *,
    classes: Sequence[str] | None = None,
    head: Head | None = None,
    scales: Literal["loo", "elbo", "evidence"] = "loo",
    groups: Tensor | None = None,
    link: Link = "probit",
    inference: Inference | None = None,
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
        inference: `Laplace()` (the default) or `Variational()`.
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
    check_prior(prior)
    data, classes = admitted(model, data, likelihood, estimator, classes)
    likelihood = likelihood or Categorical()
    generator = _shared(generator)
    task = HandedDown(model, data, prior, likelihood, classes, head, 1.0, batch_size)
    few = task.examples()
    if few is None:
        raise too_large(*task.size(), task.new_head is not None)
    check_groups(groups, few.count)
    return task.from_few(
        few, scales, groups, link, inference, shares, estimator, generator, progress, networks=polish, training={}
    )


def _shared(generator: torch.Generator | None) -> torch.Generator:
    """One generator for all steps, the same for all workers."""
    device = None if generator is None else generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    return torch.Generator().manual_seed(Workers.here().first(seed))
