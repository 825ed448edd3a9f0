"""Gaussian processes on few inputs: of numbers with one length a column, of classes with one for all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from posterity.heads import ClassHead, HeadRecipe, classify
from posterity.kernel.stacking import log_scores
from posterity.tables.minimise import minimised
from posterity.tables.model import ClassModel, NumberModel, TableFit, log_density, placed


@dataclass(frozen=True)
class ProcessRecipe:
    """Beliefs about a process, in units of standardised inputs and targets. Settled on the study `tables`' sets for settling."""

    length: float = 2.0
    """The likeliest length, times the fourth root of the number of columns."""
    lengths: float = 1.0
    """Standard deviation of the logarithm of a length."""
    equal: float = 1e-3
    """The same for classes, which have one length for all columns."""
    sizes: float = 2.0
    """The same of a variance, and of the noise's."""
    noise: float = 0.1
    """The likeliest variance of the noise."""
    steps: int = 60
    """Of L-BFGS, at most."""
    widths: tuple[float, ...] = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5)
    """Of the variance, to choose from."""


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Columns with mean 0 and variance 1 over the rows that made it."""

    centre: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]

    @staticmethod
    def of(x: Float[Tensor, "n d"]) -> Standardisation:
        deviation = x.std(0, correction=0)
        return Standardisation(x.mean(0), torch.where(deviation > 1e-9 * x.abs().amax(0), 1 / deviation, 0.0))

    def __call__(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        return (x - self.centre) * self.scale


@dataclass(frozen=True, eq=False)
class ProcessKernel:
    """k(x, z) = 1 + l x·z/d + s matern(|(x − z)/lengths|): a constant, a linear map and a smooth rest."""

    logs: Float[Tensor, " parameters"]
    """Logarithms of the lengths, of s and l, and of the variance of the noise."""

    @property
    def lengths(self) -> Float[Tensor, " d"]:
        """The length scales, one for each column."""
        return self.logs[:-3].exp()

    @property
    def noise(self) -> Float[Tensor, ""]:
        """The variance of the noise."""
        return self.logs[-1].exp()

    def parts(self, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The linear part, the smooth one, and the slope of the smooth one by the squared distance."""
        size, slope = self.logs[-3].exp(), self.logs[-2].exp()
        a, b = x / self.lengths, z / self.lengths
        squared = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.mT).clamp_min(0)
        r = (5 * squared + 1e-20).sqrt()
        decay = size * torch.exp(-r)
        return slope * (x @ z.mT) / x.shape[1], decay * (1 + r + r.square() / 3), -(5 / 6) * decay * (1 + r)

    def __call__(self, x: Float[Tensor, "n d"], z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        linear, smooth, _ = self.parts(x, z)
        return 1 + linear + smooth

    def diagonal(self, x: Float[Tensor, "m d"]) -> Float[Tensor, " m"]:
        """k(x, x) of each row."""
        return 1 + self.logs[-2].exp() * x.square().mean(1) + self.logs[-3].exp()


@dataclass(frozen=True, eq=False)
class Process(NumberModel):
    """The posterior of a process at new inputs. It is computed from the training inputs."""

    scaled: Standardisation
    kernel: ProcessKernel
    x: Float[Tensor, "n d"]
    """Training inputs, scaled."""
    weights: Float[Tensor, " n"]
    root: Float[Tensor, "n n"]
    """The inverse of the Cholesky factor of the training targets' covariance."""
    mean: float
    scale: float
    width: float = 1.0
    """What variances are multiplied by."""

    @staticmethod
    def of(x: Float[Tensor, "n d"], y: Float[Tensor, " n"], logs: Tensor) -> Process:
        """With these numbers of the kernel: exact, one Cholesky factor."""
        scaled, kernel, mean, scale = Standardisation.of(x), ProcessKernel(logs), float(y.mean()), _deviation(y)
        rows = scaled(x)
        covariance = kernel(rows, rows) + kernel.noise * torch.eye(len(y), dtype=y.dtype)
        eye = torch.eye(len(y), dtype=y.dtype)
        root = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), eye, upper=False)
        return Process(scaled, kernel, rows, root.mT @ (root @ ((y - mean) / scale)), root, mean, scale)

    def numbers(self, x: Float[Tensor, "m d"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"], Float[Tensor, " m"]]:
        rows = self.scaled(x)
        cross = self.kernel(rows, self.x)
        own = (self.kernel.diagonal(rows) - (cross @ self.root.mT).square().sum(1)).clamp_min(0)
        unit = self.width * self.scale**2
        return self.mean + self.scale * (cross @ self.weights), unit * own, unit * self.kernel.noise.expand_as(own)


def fit_process(
    x: Float[Tensor, "n d"], y: Float[Tensor, " n"], folds: Int[Tensor, " n"], recipe: ProcessRecipe | None = None
) -> TableFit:
    """Lengths and variances of greatest evidence times belief, and one width by what was left out.

    Without each fold they are found again, from those of the whole: with one length a column, numbers that have seen a target
    say too much of it. O(n³) a step, for about `steps` of the whole and half as many of each fold.
    """
    recipe = recipe or ProcessRecipe()
    logs = _best(x, y, recipe)
    process, judged = Process.of(x, y, logs), (folds >= 0).nonzero().flatten()
    mean, variance = torch.zeros_like(y), torch.ones_like(y)
    for k in folds[judged].unique().tolist():
        kept, of = (folds != k).nonzero().flatten(), (folds == k).nonzero().flatten()
        mean[of], own, noise = Process.of(x[kept], y[kept], _best(x[kept], y[kept], recipe, logs)).numbers(x[of])
        variance[of] = own + noise
    scores = [log_density(y, mean, width * variance)[judged] for width in recipe.widths]
    best = max(range(len(scores)), key=lambda i: float(scores[i].mean())) if len(judged) else recipe.widths.index(1.0)
    width = recipe.widths[best]
    return TableFit.of_numbers(replace(process, width=width), y, judged, (mean[judged], width * variance[judged]))


@dataclass(frozen=True, eq=False)
class ProcessClasses(ClassModel):
    """Logits that are a process, one length for all columns: the exact head of `posterity.heads` on the kernel's own features."""

    scaled: Standardisation
    kernel: ProcessKernel
    x: Float[Tensor, "n d"]
    """Training inputs, scaled."""
    along: Float[Tensor, "n r"]
    """Features from covariances with the training inputs."""
    head: ClassHead

    def logits(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "m classes"]:
        linear, smooth, _ = self.kernel.parts(self.scaled(x), self.x)
        return self.head.log_probs_of((linear + smooth) @ self.along)


def fit_process_classes(
    x: Float[Tensor, "n d"],
    y: Int[Tensor, " n"],
    folds: Int[Tensor, " n"],
    classes: int,
    recipe: ProcessRecipe | None = None,
) -> TableFit:
    """A process for classes. One length a column would have to be found by labels, and says too much of few.

    At unit length the features have the kernel's own geometry, so that strengths, temperatures and what is left out are the
    head's. The sizes of its parts are those of greatest evidence for the classes as numbers.
    """
    recipe = recipe or ProcessRecipe()
    scaled = Standardisation.of(x)
    rows, targets = scaled(x), one_hot(y, classes).double()
    logs = _best(x, targets, replace(recipe, lengths=recipe.equal))
    kernel = ProcessKernel(logs)
    linear, smooth, _ = kernel.parts(rows, rows)
    values, vectors = torch.linalg.eigh(linear + smooth)
    kept = values > 1e-8 * values.amax()
    along = vectors[:, kept] / values[kept].sqrt()
    found = classify((linear + smooth) @ along, y, folds, classes=classes, recipe=HeadRecipe(alone=None))
    model = ProcessClasses(scaled, kernel, rows, along, found.head)
    return TableFit(model, placed(log_scores(found.left_out, y[found.judged]), found.judged, len(y)))


def _deviation(y: Tensor) -> float:
    return float((y - y.mean(0)).square().mean().sqrt()) or 1.0


def _best(x: Tensor, y: Tensor, recipe: ProcessRecipe, start: Tensor | None = None) -> Float[Tensor, " parameters"]:
    """The kernel's numbers of greatest evidence times belief."""
    (n, d), rows, targets = x.shape, Standardisation.of(x)(x), (y - y.mean(0)) / _deviation(y)
    centre = torch.tensor([math.log(recipe.length * d**0.25)] * d + [0.0, 0.0, math.log(recipe.noise)], dtype=x.dtype)
    spread = torch.tensor([recipe.lengths] * d + [recipe.sizes] * 3, dtype=x.dtype)

    def loss(logs: Tensor) -> tuple[float, Tensor]:
        value, slope = evidence(ProcessKernel(logs), rows, targets.view(n, -1))
        away = (logs - centre) / spread
        return value + 0.5 * float(away.square().sum()), slope + away / spread

    return minimised(loss, centre if start is None else start, recipe.steps)


def evidence(
    kernel: ProcessKernel, x: Float[Tensor, "n d"], y: Float[Tensor, "n outputs"]
) -> tuple[float, Float[Tensor, " parameters"]]:
    """Minus the log density of outputs that share a kernel, but for its constant, and its slope by the kernel's numbers.

    In closed form, O(n³ + n² d); infinite where the covariance has no Cholesky factor.
    """
    linear, smooth, slope = kernel.parts(x, x)
    factor, info = torch.linalg.cholesky_ex(1 + linear + smooth + kernel.noise * torch.eye(len(x), dtype=x.dtype))
    if int(info):
        return math.inf, torch.zeros_like(kernel.logs)
    outputs, inverse = y.shape[1], torch.cholesky_inverse(factor)
    weights = inverse @ y
    change = 0.5 * (outputs * inverse - weights @ weights.mT)
    # The slope of a squared distance by the logarithm of length j is −2 (x_j − z_j)²/length_j².
    by_distance, a = change * slope, x / kernel.lengths
    squares = 2 * (by_distance.sum(1) @ a.square() - (a * (by_distance @ a)).sum(0))
    sizes = torch.stack([(change * smooth).sum(), (change * linear).sum(), kernel.noise * change.trace()])
    value = 0.5 * float((y * weights).sum()) + outputs * float(factor.diagonal().log().sum())
    return value, torch.cat([-2 * squares, sizes])
