"""Two short ways in: a trained network becomes a posterior, and any network with unlabelled inputs becomes a prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from posterity.blocks import Selection, evaluating
from posterity.checks import admitted, check_estimator, check_network, with_known_options
from posterity.curvature import EKFAC, Categorical, EmpiricalLabels, Estimator, Likelihood, estimate
from posterity.data import Data
from posterity.data.batches import Batch, Inputs, input_batches
from posterity.errors import BadData
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import with_frozen
from posterity.kernel import Link
from posterity.laplace import Scales, isotropic, update
from posterity.workflow.fit import Fit
from posterity.workflow.make import make_fit
from posterity.workflow.plan import choose_plan, facts_of
from posterity.workflow.problem import Problem
from posterity.workflow.recipe import Recipe
from posterity.workflow.ways.candidate import Options
from posterity.workflow.ways.last_layer import why_no_last_layer
from posterity.workflow.ways.structured import have_positions


@with_known_options
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
    method: str | None = None,
    recipe: Recipe | None = None,
) -> Fit:
    """A trained network becomes a posterior: the network as it is, with curvature at its training data around it.

    With `blocks=["fc"]`, the network's last layer alone, the posterior is exact: everything else stays as it is, the layer is
    fitted from scratch (Newton's method on its features, one forward pass), and the precision of its prior, the width and the
    softness of the predictive are chosen by leave-one-out. That is honest where the layers below were trained on other data;
    where they were trained on this data, give `validation`. Beyond 1,500 examples *and* 3,000 weights it is structured.

    The prior is isotropic around zero; its precision is the one of greatest evidence unless it is given. The width and softness
    of the predictive are chosen on validation data, or else by leave-one-out on up to 500 training examples; a posterior that
    is too wide for its own data is narrowed first. A network that has memorised its examples says little of itself there. Where
    they give no reason for more doubt, classes get the widest posterior that still explains them (within 0.05 nats an
    example), numbers the network's own prediction, and a `Memorisation` warning says so. With one layer alone, classes get the
    network's own prediction with 2 % of the posterior's mixed in, which costs no example more than 0.02 nats, whatever it is.
    Validation data mends that.

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
        method: "structured" for a Gaussian over weights where a last layer would be exact; by default `fit.plan` decides.
        recipe: the numbers of all ways; the settled ones by default.

    Returns:
        A `Fit` whose model is the network given.

    Raises:
        UnsupportedLayer: if a trainable layer cannot become a block; leave it out with `blocks`.

    Warns:
        Memorisation: if there is no validation data and the training data does not show how sure to be.

    Example:
        >>> fit = pt.posterior(model, train_loader)
        >>> fit.predict(x).probs
    """
    data, classes = admitted(model, data, likelihood, estimator, classes)
    options = Options(
        link=link,
        estimator=estimator,
        precision=precision,
        validation=validation,
        generator=generator,
        progress=progress,
        recipe=Recipe() if recipe is None else recipe,
    )
    problem = Problem.of(
        model,
        data,
        likelihood or Categorical(),
        classes=classes,
        blocks=blocks,
        precision=1.0 if precision is None else precision,
        groups=groups,
        batch_size=batch_size,
        limits=options.recipe.limits,
    )
    last: int | str | None = None
    # A network that is one new layer is fitted, not taken as trained.
    alone = len(problem.blocks) == 1 and problem.is_untouched
    if (blocks is not None or alone) and estimator is None:
        last = why_no_last_layer(problem, validation is not None) or next(iter(problem.blocks.values())).shape[1]
    return make_fit(problem, choose_plan(facts_of("posterior", problem, options, last), method), options)


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
    if isinstance(estimator.labels, EmpiricalLabels):
        raise BadData("a prior without labels cannot use the data's: give labels=SampledLabels(n) or ExactLabels().")
    like = next(model.parameters())
    given = input_batches(inputs, batch_size, like.device, like.dtype)
    vectors = not have_positions(model, given[0].part(0, given[0].count))
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
    found = update(model, curvature, start, Scales(beta=scale))
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
