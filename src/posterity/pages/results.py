"""One page for each kind of result: a fit, predictions, an evaluation, a certificate, a prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from torch import Tensor

from posterity import plot
from posterity.gaussian import Gaussian
from posterity.laplace import History
from posterity.pacbayes import Certificate
from posterity.pages.drawings import svg
from posterity.pages.parts import document, facts, numbers, panels, table
from posterity.predictive import Prediction, Scores
from posterity.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = 50
"""Of predictions that a page shows; the file has all of them."""


def fit_page(
    title: str,
    story: Mapping[str, str],
    gaussians: Mapping[str, Gaussian],
    history: History | None = None,
    command: str = "",
) -> str:
    """What was learned: facts by name, how training went, and how firmly the weights are held before and after."""
    drawn: dict[str, Axes] = {"spectra": plot.spectrum(gaussians)}
    if history is not None and history.epochs:
        drawn["training"] = plot.training(history)
    return _page(title, "", [facts(story)], drawn, command)


def evaluation_page(
    title: str,
    scores: Mapping[str, float],
    prediction: Prediction,
    targets: Tensor,
    classes: Sequence[str] = (),
    foreign: Tensor | None = None,
    inputs: Tensor | None = None,
    command: str = "",
    rate: float = 0.05,
) -> str:
    """How good predictions are: figures by name, and the diagrams people expect.

    Without classes it is a regression. `foreign` are scores of foreign inputs, beside those of the labelled ones.
    """
    drawn: dict[str, Axes] = {}
    if classes:
        probs = prediction.probs
        drawn["reliability"] = plot.reliability(probs, targets)
        drawn["accuracy over coverage"] = plot.coverage(probs, targets)
        drawn["confusion matrix"] = plot.confusion(probs, targets, classes=classes)
    else:
        drawn["predictions"] = plot.regression(prediction.mean, prediction.variance, targets)
    drawn |= _scores(prediction, foreign, inputs, classes, rate)
    return _page(title, f"On {len(targets):,} examples.", [_figures(scores)], drawn, command)


def prediction_page(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    prediction: Prediction,
    classes: Sequence[str] = (),
    inputs: Tensor | None = None,
    command: str = "",
) -> str:
    """Predictions: the first rows of their table, and the inputs with the highest scores where these are images."""
    caption = f"the first {ROWS} of {len(rows):,}" if len(rows) > ROWS else ""
    drawn = _scores(prediction, None, inputs, classes)
    below = [table(columns, rows[:ROWS], caption)]
    return _page(title, f"For {len(rows):,} inputs.", [], drawn, command, below)


def certificate_page(title: str, certificate: Certificate, command: str = "") -> str:
    """A certificate: the bound, where it is lost, and every number that a reviewer needs."""
    bound = f"error of {certificate.predictor}, at {100 * certificate.confidence:g} %"
    shown = [
        (f"≤ {100 * certificate.bound:.1f} %", bound),
        (f"{100 * certificate.gibbs:.1f} %", "its error on the examples that certify"),
        (f"{certificate.n:,}", "examples, none of which the prior has seen"),
    ]
    drawn = {"where the bound is lost": plot.waterfall(certificate)}
    said = "" if certificate.bound < 0.5 else "A bound above one half promises little: more examples make it smaller."
    return _page(title, said, [numbers(shown)], drawn, command, ["<h2>Every number</h2>", facts(certificate.rows())])


def prior_page(title: str, story: Mapping[str, str], gaussians: Mapping[str, Gaussian], command: str = "") -> str:
    """One prior, block by block, or several side by side."""
    only = next(iter(gaussians.values())) if len(gaussians) == 1 else None
    drawn = {"spectra": plot.spectrum(gaussians if only is None else only)}
    return _page(title, "", [facts(story)], drawn, command)


def _page(
    title: str, lead: str, top: Sequence[str], drawn: Mapping[str, Axes], command: str, below: Sequence[str] = ()
) -> str:
    drawings = [svg(ax.get_figure(root=True), name) for name, ax in drawn.items()]  # type: ignore[arg-type]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=lead>{escape(lead)}</p>" if lead else "",
        *top,
        f"<h2>Pictures</h2>{panels(drawings)}" if drawings else "",
        *below,
        f"<p class='dim small'>Posterity {escape(__version__)}"
        + (f", made by <code>{escape(command)}</code>.</p>" if command else ".</p>"),
    ]
    return document(title, parts)


def _figures(scores: Mapping[str, float]) -> str:
    first = sorted(scores.items(), key=lambda item: item[0] == "brier")[:3]
    percent = ("accuracy", "inside_95")
    large = [(f"{100 * v:.1f} %" if name in percent else f"{v:.3f}", NAMES.get(name, name)) for name, v in first]
    return numbers(large) + facts({NAMES.get(name, name): f"{value:.4f}" for name, value in scores.items()})


NAMES = {
    "accuracy": "accuracy",
    "nll": "NLL, nats",
    "ece": "ECE",
    "brier": "Brier score",
    "calibration_auroc": "AUROC of confidence for correct predictions",
    "error_at_most_95": "error at most, with 95 % confidence",
    "unknown_auroc": "AUROC for unknown inputs",
    "false_alarms": "of these inputs called unknown",
    "unknown_found": "of the unknown inputs called unknown",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "inside_95": "coverage of the 95 % intervals",
}


def _scores(
    prediction: Prediction, foreign: Tensor | None, inputs: Tensor | None, classes: Sequence[str], rate: float = 0.05
) -> dict[str, Axes]:
    if prediction.unknown is None:
        return {}
    drawn = {"scores for unknown inputs": plot.unknown(prediction.unknown, foreign, rate=rate)}
    if inputs is not None and _are_images(inputs):
        labels = [classes[int(i)] for i in prediction.labels] if classes else None
        drawn["the most unusual inputs"] = plot.gallery(inputs, prediction.unknown, labels=labels)
    return drawn


def _are_images(x: Tensor) -> bool:
    return x.ndim == 4 and x.shape[1] in (1, 3)


def scores_of(found: Scores) -> dict[str, float]:
    """Figures of a classifier by name, without those that cannot be known."""
    return {name: value for name, value in vars(found).items() if value == value}
