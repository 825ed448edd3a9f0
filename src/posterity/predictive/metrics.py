"""How good predictions are: torchmetrics where it has the measure, and the few it has not.

torchmetrics is imported where it is used: loading it takes as long as the rest of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posterity.blocks import Replica, evaluating
from posterity.brief import brief
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.data.batches import batches
from posterity.errors import BadData, BadTargets
from posterity.gaussian import Gaussian
from posterity.predictive.linearised import output_moments
from posterity.predictive.prediction import Prediction

BINS = 15

Probabilities = Float[Tensor, "n classes"] | Prediction
Labels = Int[Tensor, "n"] | npt.NDArray[np.generic] | Sequence[str] | Sequence[int]


@dataclass(frozen=True)
class Scores:
    """Measures of a classifier on labelled data. NLL in mean nats, Brier summed over classes, ECE over 15 bins (top-1, L1)."""

    accuracy: float
    nll: float
    brier: float
    ece: float
    calibration_auroc: float
    """How well 1 − max p separates wrong answers from right ones."""


def score(probs: Probabilities, targets: Labels) -> Scores:
    """All measures of probabilities against labels.

    Args:
        probs: a `Prediction`, or one row of probabilities for each example.
        targets: the right classes, as numbers; beside a `Prediction` also as names.
    Returns:
        A `Scores` with accuracy, NLL, Brier score, ECE and calibration AUROC.

    Raises:
        BadData: if the first argument holds no probabilities.
        BadTargets: if a label is none of the classes, or there are more or fewer of them.

    Example:
        >>> pt.metrics.score(fit.predict(x), y).nll
    """
    from torchmetrics.functional.classification import binary_auroc, multiclass_accuracy, multiclass_calibration_error

    probs, targets = _compared(probs, targets)
    classes = probs.shape[-1]
    # An average of probabilities may exceed one by rounding, which torchmetrics would take for logits.
    probs = probs.clamp(0, 1)
    right = probs.argmax(-1) == targets
    confidence = probs.max(-1).values
    one_hot = torch.nn.functional.one_hot(targets, classes).to(probs.dtype)
    tiny = torch.finfo(probs.dtype).tiny
    both = bool(right.any()) and not bool(right.all())
    return Scores(
        accuracy=float(multiclass_accuracy(probs, targets, classes, average="micro")),
        nll=float(-probs.gather(-1, targets[:, None]).clamp_min(tiny).log().mean()),
        brier=float((probs - one_hot).square().sum(-1).mean()),
        ece=float(multiclass_calibration_error(probs, targets, classes, n_bins=BINS, norm="l1")),
        calibration_auroc=float(binary_auroc(1 - confidence, (~right).long())) if both else float("nan"),
    )


def _compared(found: Probabilities, labels: Labels) -> tuple[Tensor, Tensor]:
    """Rows of probabilities, and the number of the right class of each."""
    names: tuple[str, ...] = ()
    if isinstance(found, Prediction):
        names = found.names
        found = found.probs
    if found.ndim != 2 or not found.is_floating_point():
        raise BadData(f"probabilities come first, one row an example; these are {found.dtype} of {tuple(found.shape)}.")
    if not bool(((found.sum(-1) - 1).abs() < 0.01).all()) or bool((found < -0.01).any()):
        raise BadData("the rows are no probabilities, they do not sum to one: give .probs, or logits.softmax(-1).")
    if not isinstance(labels, Tensor):
        array = np.asarray(labels)
        if array.dtype.kind in "USO":
            if not names:
                raise BadTargets(
                    "labels are text, and probabilities have no names: give the prediction itself, "
                    "score(fit.predict(x), labels), or numbers in the order of fit.classes."
                )
            if odd := sorted({str(label) for label in array.flat} - set(names)):
                raise BadTargets(f"the label {odd[0]!r} is none of the classes {', '.join(names[:8])}.")
            array = np.array([names.index(str(label)) for label in array.flat])
        labels = torch.as_tensor(array)
    if len(labels) != len(found):
        raise BadTargets(f"there are {len(found):,} rows of probabilities and {len(labels):,} labels.")
    targets = labels.to(found.device).long().flatten()
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < found.shape[-1]:
        raise BadTargets(
            f"labels go from {int(targets.min())} to {int(targets.max())}; classes are 0 to {found.shape[-1] - 1}."
        )
    return found, targets


def ood_auroc(inside: Float[Tensor, "n"], outside: Float[Tensor, "m"]) -> float:
    """How well an uncertainty (entropy, 1 − max p) separates foreign inputs from familiar ones: 0.5 is chance, 1 perfect.

    Args:
        inside: uncertainties of inputs like those learned from.
        outside: uncertainties of foreign inputs.
    Returns:
        The area under the ROC curve, ties counted by half.

    Example:
        >>> pt.metrics.ood_auroc(fit.predict(x).entropy, fit.predict(x_foreign).entropy)
    """
    from torchmetrics.functional.classification import binary_auroc

    inside, outside = torch.as_tensor(inside), torch.as_tensor(outside)
    scores = torch.cat((inside, outside))
    foreign = torch.cat((torch.zeros_like(inside), torch.ones_like(outside))).long()
    # Ranks instead of values: torchmetrics squashes scores outside [0, 1] by a sigmoid, which makes ties.
    ranks = torch.unique(scores, return_inverse=True)[1].double()
    return float(binary_auroc(ranks / ranks.max().clamp_min(1), foreign))


def selective_accuracy(probs: Probabilities, targets: Labels, coverage: float) -> float:
    """Accuracy on the share of inputs the classifier is surest of.

    Args:
        probs: a `Prediction`, or one row of probabilities for each example.
        targets: the right classes, as for `score`.
        coverage: the share that is kept, above 0 and up to 1.
    Returns:
        The accuracy on the kept inputs; of equal confidences the first are kept.

    Example:
        >>> pt.metrics.selective_accuracy(probs, y, coverage=0.8)
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage lies above 0 and up to 1, not {coverage}")
    probs, targets = _compared(probs, targets)
    kept = max(1, round(coverage * len(targets)))
    surest = probs.max(-1).values.argsort(descending=True, stable=True)[:kept]
    return float((probs[surest].argmax(-1) == targets[surest]).double().mean())


@dataclass(frozen=True)
class Reliability:
    """Confidence against accuracy by bins of confidence: what a reliability diagram shows."""

    __repr__ = brief

    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    share: tuple[float, ...]


def reliability(probs: Probabilities, targets: Labels, bins: int = BINS) -> Reliability:
    """Mean confidence, accuracy and share of inputs of each bin that has any.

    Args:
        probs: a `Prediction`, or one row of probabilities for each example.
        targets: the right classes, as for `score`.
        bins: of equal width, from 0 to 1.
    Returns:
        A `Reliability`: what a reliability diagram shows.

    Example:
        >>> found = pt.metrics.reliability(probs, y)
        >>> axis.plot(found.confidence, found.accuracy)
    """
    probs, targets = _compared(probs, targets)
    confidence, labels = probs.max(-1)
    index = (confidence * bins).long().clamp_max(bins - 1)
    rows = []
    for b in range(bins):
        inside = index == b
        if inside.any():
            right = (labels[inside] == targets[inside]).double().mean()
            rows.append((float(confidence[inside].mean()), float(right), float(inside.double().mean())))
    return Reliability(*zip(*rows, strict=True))


@torch.inference_mode(False)
@torch.no_grad()
def consistency(
    model: nn.Module,
    posterior: Gaussian,
    data: Data,
    likelihood: Likelihood | None = None,
    *,
    examples: int = 200,
    batch_size: int = 100,
) -> float:
    """The largest eigenvalue of H^½ S H^½ over training examples: below 1 for a posterior that has seen them.

    Args:
        model: the network.
        posterior: over its weights.
        data: what it was learned from.
        likelihood: what outputs mean; classes by default.
        examples: how many are looked at.
        batch_size: examples at a time.

    Returns:
        The eigenvalue. At or above 1, leave-one-out from this posterior has no meaning, and its predictive is too wide.

    Raises:
        BadData: if there is no example, or outputs are not one vector an example.

    Example:
        >>> pt.metrics.consistency(model, fit.posterior, data)
    """
    likelihood = likelihood or Categorical()
    largest, seen, network = 0.0, 0, Replica(model)
    with evaluating(model):
        for batch in batches(data, batch_size):
            mean, covariance = output_moments(network, posterior, batch.to(next(model.parameters()).device))
            if mean.ndim != 2:
                raise BadData(f"outputs of shape {tuple(mean.shape)}: one vector of outputs an example is needed.")
            root = likelihood.fisher_root(mean.double())
            largest = max(largest, float(torch.linalg.eigvalsh(root.mT @ covariance @ root).max()))
            seen += batch.count
            if seen >= examples:
                break
    if not seen:
        raise BadData("there is no example to look at.")
    return largest
