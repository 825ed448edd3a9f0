"""All steps in one: from a prior and data to a network that knows how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks import Selection, frozen_outside
from posterity.checks import admitted, check_prior, with_known_options
from posterity.curvature import Categorical, Estimator, Likelihood
from posterity.data import Data
from posterity.data.batches import Workers
from posterity.deprecated import was
from posterity.errors import PosterityError, TooLarge, UnsupportedNetwork, WrongChoice
from posterity.gaussian import Gaussian
from posterity.kernel import Inference, Link
from posterity.laplace import Scales
from posterity.workflow.fit import Fit
from posterity.workflow.make import make_fit
from posterity.workflow.plan import choose_plan, facts_of
from posterity.workflow.problem import Head, Problem, is_learned, kept_names
from posterity.workflow.recipe import Limits, Recipe
from posterity.workflow.ways.candidate import CRITERIA, IN_FUNCTION_SPACE, Criterion, Options


@with_known_options
def learn(
    model: nn.Module,
    data: Data,
    prior: Gaussian | None = None,
    likelihood: Likelihood | None = None,
    *,
    classes: Sequence[str] | None = None,
    head: Head | None = None,
    blocks: Selection = None,
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
    method: str | None = None,
    candidates: Literal["network", "all"] = "network",
    recipe: Recipe | None = None,
) -> Fit:
    """Fit a network to data, starting from a prior, and return its posterior.

    Few examples get the exact posterior in function space. After a learned prior it is taken around the *prior's mean*, with
    the strength of the prior, the width and the softness of the predictive chosen by leave-one-out on a declared grid: no
    validation data is needed. Networks trained from the prior's mean stand beside it, with a weight by how well they predict
    examples they had left out; the one that saw all examples is `fit.model`. Without a prior, a small regression network is
    trained on all examples and without each fold, which chooses strength, noise and width; so is a new classifier with up to
    5,000 examples (a small one: 50,000), whose networks are averaged. More examples get a structured posterior around the
    trained network; a tenth of them is held out, to stop training and to calibrate. `fit.plan` says what was done, and why.

    Args:
        model: any `nn.Module` whose trainable layers can become blocks. It is trained in place.
        data: a pair of tensors, a `Dataset`, a `DataLoader`, or batches as mappings.
        prior: what is believed before the data; None is an isotropic prior around zero, of precision 1 (n/100 with n < 100
            examples) where nothing chooses it.
        likelihood: what outputs mean: `Categorical()` (default), `GaussianNoise()` (noise learned), `Bernoulli()`.
        classes: the names of the classes, one for each output. A prior's head is handed down if its card has the same names;
            under head="keep" they are the card's, whichever of them the data has.
        head: "keep" hands the prior's head down, "new" starts at zero; by default the names of the classes decide.
        blocks: which layers learn, by name, type or predicate; all by default. The others stay as they are.
        scales: how the strength of the prior is chosen: "loo", "evidence", "elbo" (by variational inference) or "bayes" (the
            prior's own numbers, nothing chosen). "catoni" and "mcallester" take the Gaussian over weights of least PAC-Bayes
            bound estimate, and predict with it; `Scales(...)` gives its numbers.
        groups: which examples belong together (windows of one recording): they are left out together.
        link: how normal outputs become probabilities.
        inference: in function space after a learned prior: `Laplace()` (the default) or `VariationalGaussian()`.
        estimator: of curvature, for the Gaussian over weights; `EKFAC()` by default.
        head_precision: of the prior of a new head, for the Gaussian over weights.
        validation: a share of the data or other data to stop training by. None: a tenth where examples are many, else none.
        batch_size: for training and curvature.
        generator: the source of randomness.
        progress: whether to show bars.
        training: further options of `pt.train` (lr, epochs, …).
        method: one of the plan's ways by name, such as "one network"; by default `fit.plan` decides, and says why.
        candidates: "all" stacks models of a table's inputs (linear, a Gaussian process, trees) with the network by what they
            say of left-out examples: `fit.predict` is the stack's, `fit.posterior` and certificates remain the network's.
        recipe: the numbers of all ways (steps, rates, grids, limits); the settled ones by default.

    Returns:
        A `Fit`: the trained model, prior, posterior, predictor and plan.

    Raises:
        BlockMismatch: if the prior's layers are not the model's.
        FrozenMismatch: if norm statistics or frozen weights are not those of the prior: `prior.write_to(model)` restores them.

    Example:
        >>> fit = pt.learn(model, (x, y), prior=pt.load("watch.safetensors"), classes=names)
        >>> fit.predict(x_new).probs
    """
    check_prior(prior)
    data, classes = admitted(model, data, likelihood, estimator, classes or kept_names(prior, head))
    if not isinstance(scales, Scales) and scales not in CRITERIA:
        raise ValueError(f"scales is one of {', '.join(map(repr, CRITERIA))} or a Scales(...), not {scales!r}")
    options = Options(
        scales,
        link,
        inference,
        estimator=estimator,
        training={} if training is None else training,
        generator=_shared(generator),
        progress=progress,
        candidates=candidates,
        recipe=Recipe() if recipe is None else recipe,
    )
    if validation is not None:
        options = replace(options, training={"validation": validation, **options.training})
    with frozen_outside(model, blocks):
        problem = Problem.of(
            model,
            data,
            likelihood or Categorical(),
            prior=prior,
            classes=classes,
            head=head,
            head_precision=head_precision,
            groups=groups,
            batch_size=batch_size,
            limits=options.recipe.limits,
        )
        return make_fit(problem, choose_plan(facts_of("learn", problem, options), method), options)


@was("model", "prior", "data")
@with_known_options
def adapt(
    model: nn.Module,
    data: Data,
    prior: Gaussian,
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
        data: few examples, as `learn` takes them.
        prior: a learned prior.
        likelihood: what outputs mean.
        classes: the names of the classes; see `learn`.
        head: "keep" or "new"; see `learn`.
        scales: how the strength of the prior is chosen.
        groups: which examples belong together.
        link: how normal outputs become probabilities.
        inference: `Laplace()` (the default) or `VariationalGaussian()`.
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
        WrongChoice: if the prior was learned from nothing.

    Example:
        >>> fit = pt.adapt(model, (x, y), pt.load("watch.safetensors"), classes=names)
        >>> fit.predict(x_new).probs
    """
    check_prior(prior)
    data, classes = admitted(model, data, likelihood, estimator, classes or kept_names(prior, head))
    if scales not in IN_FUNCTION_SPACE:
        raise ValueError(f"scales is one of {', '.join(map(repr, IN_FUNCTION_SPACE))}, not {scales!r}")
    if not is_learned(prior):
        raise WrongChoice("pt.adapt stays near the prior's mean, and this one is zero: use pt.learn, which trains.")
    options = Options(
        scales,
        link,
        inference,
        shares,
        estimator=estimator,
        trains=polish,
        generator=_shared(generator),
        progress=progress,
    )
    problem = Problem.of(
        model,
        data,
        likelihood or Categorical(),
        prior=prior,
        classes=classes,
        head=head,
        groups=groups,
        batch_size=batch_size,
    )
    if problem.few is None:
        raise too_large(*problem.size(), problem.new_head is not None)
    return make_fit(problem, choose_plan(facts_of("adapt", problem, options)), options)


def too_large(examples: int, outputs: int, new_head: bool) -> PosterityError:
    """Why there is no exact posterior: too many examples, or outputs that are no single row for each example."""
    if Limits().exact(examples, outputs, new_head):
        return UnsupportedNetwork(
            "`pt.adapt` needs one row of outputs for each example, and all examples in one process. A language model has an "
            "output for each token: use `pt.learn(model, data, prior=prior)`, which trains and keeps a structured posterior."
        )
    return TooLarge(
        f"{examples:,} examples with {outputs} outputs are beyond the exact posterior in function space (limit "
        f"{Limits().words(new_head)}): use `pt.learn`, which keeps a structured posterior instead."
    )


def _shared(generator: torch.Generator | None) -> torch.Generator:
    """One generator for all steps, the same for all workers."""
    device = None if generator is None else generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    return torch.Generator().manual_seed(Workers.here().first(seed))
