"""The exact posterior of a last layer, everything else at the mode: cheap for large networks, and for large data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.algebra import Basis, DenseMatrix, JointEigen, Matrix, scaled_identity
from posterity.checks import check_groups
from posterity.curvature import EKFAC, Curvature, Dense, ExactLabels, GaussianNoise, Likelihood
from posterity.data import Data
from posterity.data.batches import Workers, batches
from posterity.data.hashes import Hashes, batch_hashes, gathered
from posterity.data.leave_out import LeaveOut
from posterity.data.provenance import Provenance, matrices_digest, past_of
from posterity.errors import BadData, DidNotConverge, InconsistentPosterior, NoData, UnsupportedLayer
from posterity.kernel import (
    BlockFrame,
    Calibration,
    FunctionPosterior,
    Jacobian,
    Kernel,
    LeaveOneOut,
    LinearisedNetwork,
    OutputKernel,
    SharedKernel,
    Strength,
    StrengthChoice,
    StrengthMember,
    calibrate,
)
from posterity.kernel.gradients import Rows
from posterity.kernel.last_layer import WeightKernel, WeightsLatent, as_jacobian, features_of, gauss_newton
from posterity.kernel.left_out import left_out_some
from posterity.laplace import isotropic, update
from posterity.novelty import Reference, set_aside, unchanged
from posterity.predictive.exact import LastLayer
from posterity.workflow.problem import Problem
from posterity.workflow.ways.around_prior import judged_by, left_out_outputs, with_noise
from posterity.workflow.ways.candidate import FitParts, Options, sets_scores
from posterity.workflow.ways.structured import by_heart

STEPS_OF_TEN = tuple(range(-24, 25))
"""Precisions of the prior are 10^(k/2): a finite grid whatever the features, which certificates pay for."""
AROUND = 16
"""How far from a typical output of variance 30 before any data the search goes, in half powers of ten."""
SPREAD = 4.0
"""What is believed of the strength before any data: a log-normal distribution around that middle, with so many half powers of ten
for its standard deviation. Where all left-out examples are separated, weaker is better without end, and this is what ends it."""


@dataclass(frozen=True, eq=False)
class Features:
    """What a last layer reads of some data, with the targets and which examples they are."""

    train: Jacobian
    targets: Tensor
    seen: Provenance

    @property
    def shape(self) -> tuple[int, int]:
        """(examples, inputs of the layer)."""
        return next(iter(self.train.blocks.values())).a.shape  # type: ignore[union-attr, return-value]


def why_no_last_layer(problem: Problem, validated: bool) -> str | None:
    """Why the layers selected are not one last layer with all its weights free; None if they are."""
    blocks = problem.blocks
    if len(blocks) != 1:
        return "several layers are uncertain"
    if Workers.here().size > 1:
        return "several processes share the data"
    ((name, block),) = blocks.items()
    layer = problem.model.get_submodule(name) if name in dict(problem.model.named_modules()) else None
    whole = type(layer) is nn.Linear and block.shape == (
        layer.out_features,
        layer.in_features + (layer.bias is not None),
    )
    if not whole:
        return f'"{name}" is no linear layer with all its weights free'
    first = next(iter(batches(problem.again, problem.batch_size)), None)
    if first is None:
        return None
    try:
        _, outputs = features_of(problem.model, name, first)
    except UnsupportedLayer as error:
        return str(error)
    if not validated and by_heart(outputs, problem.likelihood, problem.likelihood.check(outputs, first.targets)[1]):
        return (
            "the network has memorised its examples: its features have seen their labels, and cannot be judged by them"
        )
    return None


def read(model: nn.Module, head: str, data: Data, likelihood: Likelihood, batch_size: int) -> Features:
    """One forward pass over the data."""
    features, outputs, targets = [], [], []
    hashes: list[Hashes] = []
    unreadable: BadData | None = None
    for batch in batches(data, batch_size):
        some, out = features_of(model, head, batch)
        out, answers = likelihood.check(out, batch.targets.to(out.device))
        features.append(some)
        outputs.append(out)
        targets.append(answers)
        try:
            hashes.append(batch_hashes(batch))
        except BadData as error:
            unreadable = error
    if not features:
        raise NoData("the data held no example.")
    if unreadable is None:
        seen = Provenance.read(data, gathered(hashes, Workers.here()))
    else:
        seen = Provenance.unknown(f"the data cannot be distinguished: {unreadable}")
    return Features(as_jacobian(head, torch.cat(features), torch.cat(outputs)), torch.cat(targets), seen)


def last_layer(problem: Problem, options: Options) -> FitParts:
    """The posterior of a last layer around its own mode, with strength, width and softness chosen by leave-one-out."""
    model, likelihood, precision = problem.model, problem.likelihood, options.precision
    ((head, block),) = problem.blocks.items()
    found = read(model, head, problem.again, likelihood, problem.batch_size)
    check_groups(problem.groups, len(found.targets))
    held = None
    if options.validation is not None:
        held = read(model, head, options.validation, likelihood, problem.batch_size)
    frames = {head: BlockFrame.of(scaled_identity(precision or 1.0, block.shape))}
    if problem.learns_noise:
        outputs = found.train.outputs.shape[1]
        of = LinearisedNetwork(OutputKernel(frames), found.train, found.targets, GaussianNoise(), outputs, None)
        choice, likelihood = with_noise(of, Options())
    else:
        leave_out = LeaveOut.of(found.targets, problem.groups)
        search = _LayerSearch(frames, head, found, likelihood, held, leave_out, options)
        choice = search.only(precision) if precision is not None else search.best()
    best = choice.best.posterior
    strength = best.strength
    assert strength is not None
    chosen = strength.floor if problem.learns_noise else strength.head
    prior = isotropic(model, chosen, blocks=[head])
    if precision is None:
        by = found.seen if held is None else held.seen
        # A certificate on the data that chose pays for the choice.
        chose = prior.provenance.chose("the strength of the prior", options=choice.strengths, by=by)
        prior = prior.with_provenance(chose)
    mean = _weights(best, head, chosen)
    matrix = _curvature(found, head, best.latent.outputs, likelihood, options.recipe.last_layer.dense)
    weights = {head: mean.to(next(model.parameters()))}
    curvature = Curvature(
        {head: matrix},
        best.latent.nll,
        len(found.targets),
        Dense(ExactLabels()) if isinstance(matrix, DenseMatrix) else EKFAC(ExactLabels()),
        likelihood,
        past_of(model, weights, found.seen, beside=True).joined(found.seen),
        matrices_digest(weights),
    )
    posterior = update(weights, curvature, prior)
    posterior = replace(posterior, card=replace(posterior.card, classes=tuple(problem.classes or ())))
    predictor = LastLayer(weights, frames, choice, likelihood, options.link, head=head)
    reference, scores = _reference(problem, options, predictor, likelihood), None
    if held is None and problem.examples is not None:
        scores = sets_scores(*judged_by(predictor, problem.leave_out), likelihood, problem.leave_out)
    return FitParts(predictor, prior, posterior, curvature, reference=reference, left_out=scores)


def _reference(problem: Problem, options: Options, predictor: LastLayer, likelihood: Likelihood) -> Reference | None:
    """Features stay as they are: rows are left out, or examples were set aside."""
    model, examples = problem.model, problem.examples
    if examples is None or options.validation is not None:
        return set_aside(model, problem.again, None, likelihood, problem.batch_size)
    outputs = left_out_outputs(predictor, problem.leave_out)
    return unchanged(model, None, examples.whole, outputs, problem.leave_out, likelihood)


class _LayerSearch:
    """Strengths of the prior over a last layer, each scored by examples that its posterior has not seen."""

    def __init__(
        self,
        frames: dict[str, BlockFrame],
        head: str,
        found: Features,
        likelihood: Likelihood,
        validation: Features | None,
        leave_out: LeaveOut,
        options: Options,
    ) -> None:
        n, inputs = found.shape
        outputs, self.recipe = found.train.outputs.shape[1], options.recipe.last_layer
        # In whichever space is smaller.
        small = n <= self.recipe.in_function_space and n <= inputs * outputs
        kernel: Kernel = SharedKernel(frames, head) if small else WeightKernel(frames, head)
        self.of = LinearisedNetwork(kernel, found.train, found.targets, likelihood, outputs, None)
        self.validation, self.link = validation, options.link
        self.groups, self.folds, self.judged = leave_out.groups, leave_out.folds, leave_out.judged
        self.some: Tensor | None = None
        if not small and n > self.recipe.some and leave_out.groups is None:
            self.some = torch.randperm(n, generator=torch.Generator().manual_seed(0))[: self.recipe.some]
        self.norm = float(_rows(found, head).square().sum(-1).mean())
        self.seen: dict[int, StrengthMember | None] = {}
        self.widths = 1
        self.guess: Tensor | None = None

    def only(self, precision: float) -> StrengthChoice:
        """The width alone is to be chosen."""
        member = self._scored(precision)
        if member is None:
            raise InconsistentPosterior(
                f"a prior of precision {precision:g} cannot be fitted here: choose a larger one."
            )
        return StrengthChoice((member,), self.widths, self._criterion)

    def best(self) -> StrengthChoice:
        """From neighbour to neighbour on the grid of half powers of ten, beginning where outputs are of variance 30."""
        # Features without any size leave all strengths alike.
        middle = round(2 * math.log10(max(self.norm, 1e-12) / 30))
        low, high = (min(max(k, STEPS_OF_TEN[0]), STEPS_OF_TEN[-1]) for k in (middle - AROUND, middle + AROUND))
        here = min(max(middle, low), high)
        if self._criterion == "fixed":
            # Inputs decided where the middle is: a certificate on them pays for all that it could have been.
            count = len(STEPS_OF_TEN)
            return replace(self.only(10.0 ** (here / 2)), options=count, strengths=count)
        for stride in (2, 1):
            while True:
                near = [k for k in (here, here - stride, here + stride) if low <= k <= high]
                known = {k: m for k in near if (m := self._at(k)) is not None}
                if not known:
                    # Too weak to be fitted: look further up.
                    if here + stride > high:
                        raise InconsistentPosterior("no strength of the prior can be fitted: look for bad features.")
                    here += stride
                    continue
                scores = {k: member.nll + self._unlikely(k - middle) for k, member in known.items()}
                best = min(scores, key=lambda k: scores[k])
                if best == here or (here in scores and scores[best] > scores[here] - 1e-4):
                    break
                here = best
        member = self._at(here)
        assert member is not None
        strengths = len(STEPS_OF_TEN)
        return StrengthChoice((member,), strengths * self.widths, self._criterion, strengths)

    @property
    def _criterion(self) -> str:
        if self.validation is not None:
            return "validation"
        return "loo" if len(self.judged) else "fixed"

    def _unlikely(self, steps: int) -> float:
        """Minus the log density of a strength so many steps from the middle, in nats a left-out example."""
        if self.validation is not None:
            count = len(self.validation.targets)
        else:
            count = len(self.of.targets if self.some is None else self.some)
        return 0.5 * (steps / SPREAD) ** 2 / count

    def _at(self, k: int) -> StrengthMember | None:
        if k not in self.seen:
            self.seen[k] = self._scored(10.0 ** (k / 2))
        return self.seen[k]

    def _scored(self, precision: float) -> StrengthMember | None:
        try:
            posterior = self.of.posterior(Strength(0.0, float("inf"), precision), self.guess)
            if self._criterion == "fixed":
                # One example a class: nothing can be left out, and the mode predicts.
                return StrengthMember(1.0, posterior, Calibration(0.0), math.nan)
            left_out, targets = self._left_out(posterior)
        except (DidNotConverge, InconsistentPosterior):
            return None
        self.guess = posterior.latent.outputs
        calibration, nll, self.widths = calibrate(left_out, self.of.likelihood, targets, self.link)
        return StrengthMember(1.0, posterior, calibration, nll)

    def _left_out(self, posterior: FunctionPosterior) -> tuple[LeaveOneOut, Tensor]:
        if self.validation is not None:
            return LeaveOneOut(*posterior.moments(self.validation.train)), self.validation.targets
        if self.some is not None:
            left_out = left_out_some(posterior.latent, self.of.likelihood, self.of.targets, self.some)
            return left_out, self.of.targets[self.some]
        few = len(self.of.targets) <= self.recipe.refitted
        left_out = posterior.refitted(self.folds) if few else posterior.left_out(self.groups)
        return left_out.part(self.judged), self.of.targets[self.judged]


def _rows(found: Features, head: str) -> Float[Tensor, "n inp"]:
    rows = found.train.blocks[head]
    assert isinstance(rows, Rows)
    return rows.a


def _weights(posterior: FunctionPosterior, head: str, precision: float) -> Float[Tensor, "out inp"]:
    """The layer's weights at the mode."""
    latent = posterior.latent
    if isinstance(latent, WeightsLatent):
        return latent.theta / precision**0.5
    rows = posterior.of.train.blocks[head]
    assert isinstance(rows, Rows)
    return latent.weights.mT @ rows.a / precision


def _curvature(
    found: Features, head: str, outputs: Float[Tensor, "n outputs"], likelihood: Likelihood, dense: int
) -> Matrix:
    """Gauss–Newton in full where it is small, else its exact diagonal in the frame of its two averages."""
    features, root = _rows(found, head), likelihood.fisher_root(outputs)
    (n, inp), c = features.shape, outputs.shape[1]
    if inp * c <= dense:
        return DenseMatrix(gauss_newton(features, root), (c, inp))
    left = torch.linalg.eigh(torch.einsum("nij,nkj->ik", root, root)).eigenvectors
    if n < inp:
        # Directions that no example has are all alike: any basis of them will do, and is cheaper than an eigenbasis.
        span = torch.linalg.svd(features, full_matrices=False).Vh.mT
        right = _completed(span)
    else:
        right = torch.linalg.eigh(features.mT @ features).eigenvectors
    weights = (left.mT @ root).square().sum(-1)
    values = weights.mT @ (features @ right).square()
    return JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values)


def _completed(span: Float[Tensor, "side n"]) -> Float[Tensor, "side side"]:
    """An orthogonal matrix whose first columns are those of the span, up to signs.

    Householder's reflections all at once, I − V T Vᵀ: a tenth of the time of a complete QR, which applies them one by one.
    """
    reflectors, tau = torch.geqrf(span)
    v = reflectors.tril(-1)
    v.diagonal().fill_(1)
    idle = tau == 0
    v, tau = v.masked_fill(idle, 0), tau.masked_fill(idle, 1)
    inner = (v.mT @ v).triu(1) + torch.diag(1 / tau)
    whole = -v @ torch.linalg.solve_triangular(inner, v.mT, upper=True)
    whole.diagonal().add_(1)
    return whole
