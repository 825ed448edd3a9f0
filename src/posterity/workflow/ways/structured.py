"""A Gaussian over weights that predicts by itself: how wide and how soft it is, and the one around a trained network."""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import replace

import torch
from torch import Tensor, nn

from posterity.blocks import Replica, evaluating, find_blocks, named, read_blocks
from posterity.checks import ValidatedData
from posterity.curvature import EKFAC, Categorical, GaussianNoise, Likelihood, estimate
from posterity.data import Data
from posterity.data.batches import Batch, batches
from posterity.errors import BadData, Memorisation, NotTrained
from posterity.gaussian import Gaussian
from posterity.kernel import Calibration, LeaveOneOut, Link, calibrate, residual_noise
from posterity.kernel.choose import TAUS
from posterity.kernel.left_out import without_themselves
from posterity.kernel.stacking import temperature
from posterity.laplace import isotropic, tune_strength, update
from posterity.laplace.polish import levels_to_the_user
from posterity.novelty import set_aside
from posterity.predictive.exact import AveragedNetworks
from posterity.predictive.linearised import StructuredGaussian, output_moments, require_room
from posterity.predictive.predictor import Predictor, Stack
from posterity.predictive.sets import LeftOutScores
from posterity.workflow.problem import Problem
from posterity.workflow.ways.candidate import Candidate, FitParts, Options, deviations_of, probs_of, stack

log = logging.getLogger("posterity")

LOOKED_AT = 500
"""Training examples that the width of a posterior is chosen by."""
MEMORISED, CLOSE = 0.2, 0.01
"""Mean NLL of a classifier's own training targets, and the share of a regression's variance that is left, below which it may
know them by heart."""
VALIDATED = 1.5
"""The spread of what is believed of a logarithmic temperature where validation examples choose it: hardly anything."""
SPARED = 0.05
"""Nats that a posterior may cost a training example where nothing else says how wide to be (study memorised)."""
PROMISED = 0.02
"""Nats that a posterior of one layer costs an example at most, any example, where nothing else says how wide to be."""


def structured(problem: Problem, options: Options) -> FitParts:
    """A trained network as it is, with curvature at its training data around it.

    The prior's precision is the one of greatest evidence unless it is given.
    """
    model, likelihood, blocks = problem.model, problem.likelihood, named(problem.prior.mean)
    require_room(min(LOOKED_AT, problem.size()[0]), problem.size()[1])
    if problem.learns_noise:
        likelihood = _noise(model, problem.again, problem.batch_size)
    _check_trained(problem, likelihood)
    curvature = estimate(
        model,
        ValidatedData(problem.again),
        options.estimator or EKFAC(),
        likelihood,
        blocks=blocks,
        batch_size=problem.batch_size,
        generator=options.generator,
        progress=options.progress,
    )
    prior = problem.prior
    if options.precision is None:
        tuned = tune_strength(model, curvature, prior)
        assert isinstance(tuned.alpha, float)
        prior = isotropic(model, tuned.alpha, blocks=blocks)
        # A precision from a continuum: the prior has seen the data that chose it, and cannot be certified on it.
        prior = prior.with_provenance(prior.provenance.joined(tuned.provenance))
    found = update(model, curvature, prior)
    found = replace(found, card=replace(found.card, classes=tuple(problem.classes or ())))
    data, held, size = problem.again, options.validation, problem.batch_size
    predictor, scores = predictive(model, found, likelihood, data, held, options, size)
    reference = set_aside(model, data, held, likelihood, size)
    return FitParts(predictor, prior, found, curvature, reference=reference, left_out=scores)


@torch.no_grad()
def _check_trained(problem: Problem, likelihood: Likelihood) -> None:
    """Refuse weights as torch starts them that are no better than the same prediction for every input.

    Raises:
        NotTrained: with what to do instead.
    """
    first = next(iter(batches(problem.again, problem.batch_size)), None)
    if first is None or not isinstance(likelihood, Categorical) or not problem.is_untouched:
        return
    with evaluating(problem.model):
        first = first.to(next(problem.model.parameters()).device)
        outputs, targets = likelihood.check(first.outputs(problem.model), first.targets)
    if outputs.ndim != 2:
        return
    shares = targets.bincount(minlength=outputs.shape[1]).double()
    constant = (shares / shares.sum()).clamp_min(1e-12).log().to(outputs).expand_as(outputs)
    if float(likelihood.nll(outputs, targets)) >= float(likelihood.nll(constant, targets)):
        raise NotTrained(
            "the network's weights are as torch starts them, and predict no better than one answer for all inputs: pt.posterior "
            "takes a trained network. Train it with pt.learn, or fit the last layer alone with blocks=[its name]."
        )


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


def predictive(
    model: nn.Module,
    gaussian: Gaussian,
    likelihood: Likelihood,
    data: Data,
    held: Data | None,
    options: Options,
    batch_size: int,
) -> tuple[Predictor, LeftOutScores | None]:
    """The predictive of a Gaussian around a network, as wide and as soft as held-out examples say, else training examples.

    Held-out classes also judge the network as it is, with a temperature: the simpler of two candidates, which weighs more
    until they speak for the other. With the scores of held-out examples, for sets and intervals. Without them, and where the
    network has memorised its examples, a posterior of one layer is mixed into the network's prediction as it is, which weighs
    exp(−`PROMISED`): no input is predicted worse than by the network by more than that.
    """
    link = options.link
    if held is None:
        calibration, unsure = _by_training_data(model, gaussian, likelihood, data, link, batch_size)
        own = StructuredGaussian(gaussian, calibration, likelihood, link)
        if not unsure:
            return own, None
        if isinstance(likelihood, GaussianNoise):
            _warn("The network's own prediction is used")
            return own, None
        if len(gaussian.mean) > 1:
            _warn("The widest posterior that still explains them is used")
            return own, None
        share, alone = math.exp(-PROMISED), _as_trained(model, gaussian, Calibration(0.0), likelihood, link)
        _warn(f"The network's own prediction weighs {share:.0%}, and the posterior's the rest")
        said = f"structured {1 - share:.2f}, as trained {share:.2f}"
        return Stack(((1 - share, replace(own, calibration=Calibration())), (share, alone)), said), None
    found = _predicted(model, gaussian, likelihood, held, batch_size)
    if found is None:
        return StructuredGaussian(gaussian, Calibration(), likelihood, link), None
    outputs, targets = found
    wide = calibrate(outputs, likelihood, targets, link)[0]
    own = StructuredGaussian(gaussian, wide, likelihood, link)
    if isinstance(likelihood, GaussianNoise):
        values = deviations_of(outputs, likelihood, targets, wide.tau)
        return own, None if values is None else LeftOutScores.of(values)
    soft = Calibration(0.0, temperature(outputs.mean, likelihood, targets, spread=VALIDATED))
    alone = _as_trained(model, gaussian, soft, likelihood, link)
    candidates = [
        Candidate(gaussian, likelihood, predictor, outputs.log_probs(likelihood, targets, c, link).exp())
        for predictor, c in ((own, wide), (alone, soft))
    ]
    found_stack = stack(("structured", "as trained"), candidates, None, options.recipe.stacking)
    return found_stack, LeftOutScores.of(1 - probs_of(found_stack, candidates))


def _as_trained(
    model: nn.Module, gaussian: Gaussian, calibration: Calibration, likelihood: Likelihood, link: Link
) -> AveragedNetworks:
    """The network as it is."""
    blocks = find_blocks(model, named(gaussian.mean))
    network = {name: matrix.detach() for name, matrix in read_blocks(model, blocks).items()}
    return AveragedNetworks(((1.0, network),), calibration, likelihood, link)


def _by_training_data(
    model: nn.Module, gaussian: Gaussian, likelihood: Likelihood, data: Data, link: Link, batch_size: int
) -> tuple[Calibration, bool]:
    """Width and softness by leave-one-out on some training examples, and whether these are memorised."""
    found_at = _predicted(model, gaussian, likelihood, data, batch_size, LOOKED_AT)
    if found_at is None:
        return Calibration(), False
    left_out, answers = found_at
    share = _believable(left_out, likelihood)
    found = Calibration(0.0, 1.0)
    if share:
        narrow = LeaveOneOut(left_out.mean, share * left_out.covariance)
        found = calibrate(without_themselves(narrow, likelihood, answers), likelihood, answers, link)[0]
        found = Calibration(share * found.tau, found.temperature)
    if found.temperature == 1 and by_heart(left_out.mean, likelihood, answers):
        widest = _widest(left_out, likelihood, answers, link)
        if found.tau <= widest:
            return replace(found, tau=widest), True
    elif not found.tau and found.temperature == 1:
        log.warning("predictions are the network's own: the training data gives no reason for other ones.")
    return found, False


def _predicted(
    model: nn.Module,
    gaussian: Gaussian,
    likelihood: Likelihood,
    data: Data,
    batch_size: int,
    most: float = math.inf,
) -> tuple[LeaveOneOut, Tensor] | None:
    """Normal outputs of examples, and targets; None if outputs have positions, or there is no example."""
    means: list[Tensor] = []
    covariances, targets = [], []
    count, network = 0, Replica(model)
    for batch in batches(data, batch_size):
        batch = batch.to(next(model.parameters()).device)
        if not means and have_positions(model, batch):
            log.info("outputs have positions: the predictive is not calibrated")
            return None
        mean, covariance = output_moments(network, gaussian, batch)
        means.append(mean.double())
        covariances.append(covariance)
        targets.append(likelihood.check(mean, batch.targets.to(mean.device))[1])
        count += batch.count
        if count >= most:
            break
    if not means:
        return None
    return LeaveOneOut(torch.cat(means), torch.cat(covariances)), torch.cat(targets)


def by_heart(outputs: Tensor, likelihood: Likelihood, targets: Tensor) -> bool:
    """Whether outputs fit their targets so closely that the network may have memorised them."""
    if isinstance(likelihood, GaussianNoise):
        mean = likelihood.predicted(outputs, torch.zeros_like(outputs))[0]
        targets = targets.to(mean).view_as(mean)
        return bool((mean - targets).square().mean() < CLOSE * targets.var(0, correction=0).mean())
    return float(likelihood.nll(outputs, targets)) < MEMORISED * targets.numel()


def _widest(seen: LeaveOneOut, likelihood: Likelihood, targets: Tensor, link: Link) -> float:
    """The greatest width that still explains the training targets: they show what is too wide, not what is too narrow."""
    if isinstance(likelihood, GaussianNoise):
        return 0.0
    most = seen.nll(likelihood, targets, Calibration(0.0), link) + SPARED
    return max(t for t in TAUS if not t or seen.nll(likelihood, targets, Calibration(t), link) <= most)


def _warn(used: str) -> None:
    warnings.warn(
        "the network fits its training examples as if it had memorised them, and they do not show how sure it should be of "
        f"others. {used}. Give examples that were not trained on, pt.posterior(..., validation=(x, y)), or train "
        "with pt.learn, which holds a part out.",
        Memorisation,
        stacklevel=levels_to_the_user(),
    )


def _believable(seen: LeaveOneOut, likelihood: Likelihood) -> float:
    """How much of a posterior's covariance to believe, for its own examples to be left out of it.

    With S the covariance of an example's outputs and H its curvature, a posterior that has seen the example has HS < 1.
    Structured curvature misses some of it, and HS may be 50: the largest share on the grid that keeps it below one half.
    """
    root = likelihood.fisher_root(seen.mean)
    largest = float(torch.linalg.eigvalsh(root.mT @ seen.covariance @ root).max())
    return 1.0 if largest < 1 else next((tau for tau in reversed(TAUS) if tau * largest <= 0.5), 0.0)


@torch.no_grad()
def have_positions(model: nn.Module, batch: Batch) -> bool:
    """Whether an example has more than one vector of outputs, such as one for each token."""
    with evaluating(model):
        return batch.outputs(model).ndim != 2
