"""Two short ways in: a trained network becomes a posterior, and any network with unlabelled inputs becomes a prior."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from posterity.blocks import Selection, evaluating
from posterity.checks import Admitted, admitted, check_estimator, check_network
from posterity.curvature import EKFAC, Categorical, Data, Empirical, Estimator, GaussianNoise, Likelihood, estimate
from posterity.curvature.batches import Batch, Inputs, batches, input_batches
from posterity.errors import BadData, Memorised
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import with_frozen
from posterity.kernel import Calibration, LeftOut, Link, calibrate, residual_noise, spread
from posterity.kernel.choose import TAUS
from posterity.kernel.left_out import without_themselves
from posterity.laplace import Scales, isotropic, tune_strength, update
from posterity.laplace.train import levels_to_the_user
from posterity.predictive.linearised import output_moments
from posterity.workflow.fit import Fit
from posterity.workflow.last_layer import last_layer

log = logging.getLogger("posterity")

LOOKED_AT = 500
"""Training examples that the width of a posterior is chosen by."""
MEMORISED, CLOSE = 0.2, 0.01
"""Mean NLL of a classifier's own training targets, and the share of a regression's variance that is left, below which it may
know them by heart."""
SPARED = 0.05
"""Nats that a posterior may cost a training example where nothing else tells how wide to be (benchmarks/memorised.py)."""


def posterior(
    model: nn.Module,
    data: Data,
    likelihood: Likelihood | None = None,
    *,
    validation: Data | None = None,
    precision: float | None = None,
    estimator: Estimator | None = None,
    blocks: Selection = None,
    groups: torch.Tensor | None = None,
    classes: Sequence[str] | None = None,
    link: Link = "probit",
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> Fit:
    """A trained network becomes a posterior: the network as it is, with curvature at its training data around it.

    With `blocks=["fc"]`, the network's last layer alone, the posterior is exact: everything else stays as it is, the layer is
    fitted anew (Newton's method on its features, one forward pass), and the precision of its prior, the width and the softness
    of the predictive are chosen by leave-one-out. That is honest where the layers below were trained on other data; where they
    were trained on this data, give `validation`. Beyond 1,500 examples *and* 3,000 weights it is structured as all else.

    The prior is isotropic around zero; its precision is the one of greatest evidence unless it is given. The width and softness
    of the predictive are chosen on validation data, or else by leave-one-out on up to 500 training examples; a posterior that
    is too wide for its own data is narrowed first. A network that has memorised its examples says little of itself there. Where
    they give no reason for more doubt, classes get the widest posterior that still explains them (within 0.05 nats an
    example), numbers the network's own prediction, and a `Memorised` warning says so. Validation data mends that.

    Args:
        model: a trained network. It is not changed.
        data: what it was trained on.
        likelihood: what outputs mean; classes by default. The noise of `GaussianNoise()` is that of the residuals.
        validation: examples that were not trained on, to calibrate with.
        precision: of the prior; by the evidence if None.
        estimator: of curvature; `EKFAC()` by default.
        blocks: which layers are uncertain, by name, type or predicate; all by default, `blocks=["fc"]` for a last layer.
        groups: which examples belong together (windows of one recording): left out together, for a last layer.
        classes: the names of the classes, for the posterior's card.
        link: how normal outputs become probabilities.
        batch_size: examples at a time.
        generator: the source of randomness.
        progress: whether to show bars.

    Returns:
        A `Fit` whose model is the network given.

    Raises:
        UnsupportedLayer: if a trainable layer cannot become a block; leave it out with `blocks`.

    Warns:
        Memorised: if there is no validation data and the training data cannot tell how sure to be.

    Example:
        >>> fit = pt.posterior(model, train_loader)
        >>> fit.predict(x).probs
    """
    data, classes = admitted(model, data, likelihood, estimator, classes)
    likelihood = likelihood or Categorical()
    if blocks is not None and estimator is None:
        exact = last_layer(
            model,
            data,
            likelihood,
            blocks,
            precision=precision,
            validation=validation,
            groups=groups,
            link=link,
            classes=classes,
            batch_size=batch_size,
        )
        if exact is not None:
            return exact
    if isinstance(likelihood, GaussianNoise) and likelihood.precision is None:
        likelihood = _noise(model, data, batch_size)
    curvature = estimate(
        model,
        Admitted(data),
        estimator or EKFAC(),
        likelihood,
        blocks=blocks,
        batch_size=batch_size,
        generator=generator,
        progress=progress,
    )
    prior = isotropic(model, precision or 1.0, blocks=blocks)
    if precision is None:
        tuned = tune_strength(prior, model, curvature)
        assert isinstance(tuned.alpha, float)
        prior = isotropic(model, tuned.alpha, blocks=blocks)
        # A precision from a continuum: the prior has seen the data that chose it, and cannot be certified on it.
        prior = prior.with_provenance(prior.provenance.joined(tuned.provenance))
    found = update(prior, model, curvature)
    found = replace(found, card=replace(found.card, classes=tuple(classes or ())))
    calibration = calibrated(model, found, likelihood, data, validation, link, batch_size)
    return Fit(model, prior, found, curvature, Scales(), None, likelihood, None, calibration)


def prior(
    model: nn.Module,
    inputs: Inputs,
    *,
    floor: float = 1.0,
    population: int | None = None,
    estimator: Estimator | None = None,
    blocks: Selection = None,
    text: str = "",
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Gaussian:
    """A prior from any trained network and some inputs, without labels.

    Its mean is the network's weights. Its precision is share · F + floor · identity, with F the Fisher information at labels
    that the network draws itself: it needs inputs alone. Both numbers stay adjustable, and `learn` and `adapt` choose them.

    Args:
        model: a trained classifier. It is not changed.
        inputs: some inputs of the kind it was trained on: a tensor, an array, a Dataset or a DataLoader.
        floor: the precision of directions without curvature.
        population: how many examples the network was trained on; F is scaled up to that many (None: as many as there are inputs).
        estimator: of curvature; `EKFAC()` by default.
        blocks: which layers get a prior.
        text: a sentence for the prior's card.
        batch_size: inputs at a time.
        generator: the source of randomness.
        checkpoint: a file to keep the sums in on the way: a run that was stopped goes on from it (see `estimate`).
        progress: whether to show bars.

    Returns:
        A `Gaussian` to save, to share, and to learn from. What its network has seen is unknown, so certificates refuse it
        unless that is vouched for.

    Raises:
        BadData: if there are no inputs.

    Example:
        >>> pt.prior(resnet, images, population=1_281_167).save("imagenet.safetensors")
    """
    check_estimator(estimator)
    check_network(model, classes=True)
    estimator = estimator or EKFAC()
    if isinstance(estimator.labels, Empirical):
        raise BadData("a prior without labels cannot use the data's: give labels=Sampled(n) or Exact().")
    given = input_batches(inputs, batch_size, next(model.parameters()).device)
    vectors = not _have_positions(model, given[0].part(0, given[0].count))
    curvature = estimate(
        model,
        [_labelled(model, batch, vectors) for batch in given],
        estimator,
        Categorical(),
        blocks=blocks,
        batch_size=batch_size,
        generator=generator,
        checkpoint=checkpoint,
        progress=progress,
    )
    scale = 1.0 if population is None else population / curvature.count
    start = isotropic(model, floor, mean="model", blocks=blocks)
    found = update(start, model, curvature, Scales(beta=scale))
    return with_frozen(replace(found, card=replace(found.card, text=text)), model)


@torch.no_grad()
def _labelled(model: nn.Module, batch: Batch, vectors: bool) -> tuple[object, torch.Tensor]:
    """Inputs with stand-ins for labels, of the shape that the outputs ask for: one a vector, else what a forward pass tells."""
    if vectors:
        shape = torch.Size((batch.count,))
    else:
        with evaluating(model):
            shape = batch.outputs(model).shape[:-1]
    inputs = batch.named if batch.named else batch.positional[0]
    return inputs, torch.zeros(shape, dtype=torch.int64)


@torch.no_grad()
def _noise(model: nn.Module, data: Data, batch_size: int) -> GaussianNoise:
    outputs, targets = [], []
    with evaluating(model):
        for batch in batches(data, batch_size):
            one, other = GaussianNoise().check(batch.to(next(model.parameters()).device).outputs(model), batch.targets)
            outputs.append(one)
            targets.append(other.to(one.device))
    if not outputs:
        raise BadData("there is no example to learn the noise from.")
    return residual_noise(torch.cat(outputs), torch.cat(targets))


def calibrated(
    model: nn.Module,
    gaussian: Gaussian,
    likelihood: Likelihood,
    data: Data,
    validation: Data | None,
    link: Link,
    batch_size: int,
) -> Calibration:
    """Width and softness of a structured predictive: by held-out examples, else by leave-one-out on some training examples."""
    most, looked_at = (LOOKED_AT, data) if validation is None else (math.inf, validation)
    found_at = _predicted(model, gaussian, likelihood, looked_at, batch_size, most)
    if found_at is None:
        return Calibration()
    left_out, answers, usual = found_at
    if validation is not None:
        return replace(calibrate(left_out, likelihood, answers, link)[0], usual=usual)
    share = _believable(left_out, likelihood)
    found = Calibration(0.0, 1.0)
    if share:
        narrow = LeftOut(left_out.mean, share * left_out.covariance)
        found = calibrate(without_themselves(narrow, likelihood, answers), likelihood, answers, link)[0]
        found = Calibration(share * found.tau, found.temperature)
    if found.temperature == 1 and _by_heart(left_out, likelihood, answers):
        found = replace(found, tau=_undecided(left_out, likelihood, answers, link, found.tau))
    elif not found.tau and found.temperature == 1:
        log.warning("predictions are the network's own: the training data gives no reason for other ones.")
    return replace(found, usual=usual)


def usual_spread(
    model: nn.Module, gaussian: Gaussian, likelihood: Likelihood, data: Data, batch_size: int
) -> float | None:
    """The largest variance of outputs at some of the training examples (see `Calibration.usual`)."""
    found = _predicted(model, gaussian, likelihood, data, batch_size, LOOKED_AT)
    return None if found is None else found[2]


def _predicted(
    model: nn.Module,
    gaussian: Gaussian,
    likelihood: Likelihood,
    data: Data,
    batch_size: int,
    most: float = math.inf,
) -> tuple[LeftOut, torch.Tensor, float | None] | None:
    """Normal outputs of examples, targets and the largest variance; None if outputs have positions, or there is no example."""
    means: list[torch.Tensor] = []
    covariances, targets = [], []
    count = 0
    for batch in batches(data, batch_size):
        batch = batch.to(next(model.parameters()).device)
        if not means and _have_positions(model, batch):
            log.info("outputs have positions: the predictive is not calibrated")
            return None
        mean, covariance = output_moments(model, gaussian, batch)
        means.append(mean.double())
        covariances.append(covariance)
        targets.append(likelihood.check(mean, batch.targets.to(mean.device))[1])
        count += batch.count
        if count >= most:
            break
    if not means:
        return None
    found = LeftOut(torch.cat(means), torch.cat(covariances))
    usual = None if isinstance(likelihood, GaussianNoise) else float(spread(found.covariance, likelihood).max())
    return found, torch.cat(targets), usual


def _by_heart(seen: LeftOut, likelihood: Likelihood, targets: torch.Tensor) -> bool:
    """Whether outputs fit their targets so closely that little of what was left out could be surprising."""
    if isinstance(likelihood, GaussianNoise):
        targets = targets.to(seen.mean).view_as(seen.mean)
        return bool((seen.mean - targets).square().mean() < CLOSE * targets.var(0, correction=0).mean())
    return float(likelihood.nll(seen.mean, targets)) < MEMORISED * targets.numel()


def _undecided(seen: LeftOut, likelihood: Likelihood, targets: torch.Tensor, link: Link, tau: float) -> float:
    """A width where the training data asks for none but `tau`, with a warning that it cannot know."""
    widest, used = 0.0, "The network's own prediction"
    if not isinstance(likelihood, GaussianNoise):
        # They cannot tell what is too narrow. They can tell what is too wide.
        most = seen.nll(likelihood, targets, Calibration(0.0), link) + SPARED
        widest = max(t for t in TAUS if not t or seen.nll(likelihood, targets, Calibration(t), link) <= most)
        used = "The widest posterior that still explains them"
    if tau > widest:
        return tau
    warnings.warn(
        "the network fits its training examples as if it had memorised them, and they cannot tell how sure it should be of "
        f"others. {used} is used. Give examples that were not trained on, pt.posterior(..., validation=(x, y)), or train "
        "with pt.learn, which holds a part out.",
        Memorised,
        stacklevel=levels_to_the_user(),
    )
    return widest


def _believable(seen: LeftOut, likelihood: Likelihood) -> float:
    """How much of a posterior's covariance to believe, for its own examples to be left out of it.

    With S the covariance of an example's outputs and H its curvature, a posterior that has seen the example has HS < 1.
    Structured curvature misses some of it, and HS may be 50: the largest share on the grid that keeps it below one half.
    """
    root = likelihood.fisher_root(seen.mean)
    largest = float(torch.linalg.eigvalsh(root.mT @ seen.covariance @ root).max())
    return 1.0 if largest < 1 else next((tau for tau in reversed(TAUS) if tau * largest <= 0.5), 0.0)


@torch.no_grad()
def _have_positions(model: nn.Module, batch: Batch) -> bool:
    """Whether an example has more than one vector of outputs, such as one for each token."""
    with evaluating(model):
        return batch.outputs(model).ndim != 2
