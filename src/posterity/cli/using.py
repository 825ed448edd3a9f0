"""`posterity predict` and `posterity evaluate`: what a fit says of new data."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

import posterity as pt
from posterity.cli import options as opt
from posterity.cli.output import command_line, note, plain, report, write_page
from posterity.cli.reading import ReadOptions, TensorExamples, read
from posterity.cli.saved import SavedFile, open_saved, seen_rows_of
from posterity.data.hashes import by_chance, seen
from posterity.data.provenance import Provenance
from posterity.errors import BadData
from posterity.files import replacing, write_whole
from posterity.novelty import alarm
from posterity.pacbayes.examples import CertificateData as Counted
from posterity.pages import evaluation_page, prediction_page
from posterity.pages.results import NAMES, scores_of

SHOWN = 10
"""Predictions that are printed where no file is asked for."""
UNITS = (
    "mean, low_95 and high_95 are in the units of {}; epistemic and aleatoric are variances, in these units squared; "
    "unknown has none."
)


def predict(
    fit: opt.FitFile,
    data: opt.Data,
    out: Annotated[Path | None, opt.out_file("A .csv or .npz file for the predictions.")] = None,
    network: opt.Network = None,
    encoder: opt.Encoder = None,
    missing: opt.Missing = None,
    part: opt.Part = "test",
    seed: opt.Seed = 0,
    page: opt.Page = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Predict for new inputs: probabilities (or numbers), how much more data would settle, and a score for the unknown."""
    if out is not None:
        _check_out(out, (".csv", ".npz"))
    opened, asked = open_saved(fit), opt.reading(missing=missing, part=part, encoder=encoder, quiet=quiet)
    examples = _read(opened, data, asked, needed=False)
    prediction = _predict(opened, network, examples, seed, quiet)
    names, classes = examples.names, opened.said.classes
    columns, rows = _rows(names, prediction, classes)
    result: dict[str, Any] = {"count": len(names), "out": None if out is None else str(out)}
    if out is None:
        result["predictions"] = [dict(zip(columns, row, strict=True)) for row in rows]
        where = f"The first {min(SHOWN, len(names))} of {len(names):,}; --out FILE.csv keeps all."
    else:
        write_predictions(out, names, prediction, classes)
        where = f"All {len(names):,} are in {out}."
    brief, short = _brief(columns, rows)
    shown = [
        (row[0], ", ".join(f"{c} {value}" for c, value in zip(brief[1:], row[1:], strict=True)))
        for row in short[: SHOWN if out is None else 5]
    ]
    units = [] if classes else [UNITS.format(opened.said.recipe.target or "the targets")]
    title = f"Predictions for {data}"
    report(result, as_json, title, shown, [where, *units])
    write_page(page, lambda: prediction_page(title, brief, short, prediction, classes, examples.x, command_line()))


def evaluate(
    fit: opt.FitFile,
    data: opt.Data,
    unknown: Annotated[
        str | None, typer.Option(help="Foreign data: how well is it distinguished from the labelled data?")
    ] = None,
    rate: Annotated[
        float, typer.Option(help="Of false alarms: the share of known inputs that may be called unknown.")
    ] = 0.05,
    out: Annotated[Path | None, opt.out_file("A .json file for the figures.")] = None,
    network: opt.Network = None,
    encoder: opt.Encoder = None,
    target: opt.Target = None,
    labels: opt.Labels = None,
    groups: opt.Groups = None,
    missing: opt.Missing = None,
    part: opt.Part = "test",
    seed: opt.Seed = 0,
    page: opt.Page = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Measure a fit on labelled data: accuracy, NLL, calibration, and how well it notices foreign inputs."""
    if out is not None:
        _check_out(out, (".json",))
    opened = open_saved(fit)
    asked = opt.reading(target, missing=missing, part=part, groups=groups, labels=labels, encoder=encoder, quiet=quiet)
    examples = _read(opened, data, asked)
    prediction = _predict(opened, network, examples, seed, quiet)
    classes = opened.said.classes
    y = examples.pair[1]
    lines: list[str] = []
    if classes:
        scores = scores_of(pt.metrics.score(prediction.probs, y))
        if known := _seen(opened, examples):
            lines.append(
                f"{known:,} of these examples are among those learned from: the figures are better than new data would give."
            )
        else:
            counted = Counted.of(examples.pair, groups=examples.groups)
            scores["error_at_most_95"] = counted.bound(prediction.labels != y, 0.05)
            lines.append(
                "The bound on the error holds with 95 % if nothing was chosen by these examples, and for "
                + "; ".join((*counted.assumes, *counted.notes))
                + "."
            )
    else:
        recipe = opened.said.recipe
        y = y * recipe.target_scale + recipe.target_mean
        scores = _regression_scores(prediction, y)
    foreign: Tensor | None = None
    if unknown is not None:
        others = _read(opened, unknown, asked, needed=False)
        foreign = _predict(opened, network, others, seed, quiet).unknown
        if foreign is not None and prediction.unknown is not None:
            scores["unknown_auroc"] = pt.metrics.ood_auroc(prediction.unknown, foreign)
            scores["false_alarms"] = float(prediction.alarm(rate).double().mean())
            scores["unknown_found"] = float(alarm(foreign, rate).double().mean())
    result = {"count": len(examples.x), **scores}
    if out is not None:
        write_whole(out, json.dumps(plain(result), indent=1) + "\n")
    rows = [(NAMES.get(name, name), f"{value:.4f}") for name, value in scores.items()]
    report(result, as_json, f"{fit} on {len(examples.x):,} examples of {data}", rows, lines)
    title = f"{fit.name} on {data}"
    drawn = prediction, y, classes, foreign, examples.x
    write_page(page, lambda: evaluation_page(title, scores, *drawn, command_line(), rate))


def _read(opened: SavedFile, data: str, asked: ReadOptions, needed: bool = True) -> TensorExamples:
    m = opened.said
    found = read(data, asked, m.recipe, m.classes, needed)
    for line in found.notes:
        note(line, asked.quiet)
    return found


def _seen(opened: SavedFile, examples: TensorExamples) -> int:
    """How many of the examples the fit has learned from, by its record."""
    here, past = Provenance.of(examples.pair).hashes, opened.handed_down
    shared = int(seen(past.provenance.hashes, here).sum())
    return max(shared if shared > by_chance(here) else 0, seen_rows_of(past).among(examples))


def _predict(opened: SavedFile, network: str | None, examples: TensorExamples, seed: int, quiet: bool) -> pt.Prediction:
    """Predictions, those of a regression in the target's own units."""
    fit = opened.fit(network)
    note(f"predicting for {len(examples.x):,} inputs", quiet)
    found = fit.predict(examples.x, generator=torch.Generator().manual_seed(seed))
    recipe = opened.said.recipe
    if recipe.task == "classification":
        return found
    s = recipe.target_scale
    mean, epistemic, aleatoric = found.mean * s + recipe.target_mean, found.epistemic * s**2, found.aleatoric * s**2
    return replace(found, mean=mean, epistemic=epistemic, aleatoric=aleatoric)


def _regression_scores(prediction: pt.Prediction, y: Tensor) -> dict[str, float]:
    error = (prediction.mean - y).double()
    variance = prediction.variance.double().clamp_min(1e-300)
    nll = 0.5 * (error.square() / variance + variance.log() + torch.log(torch.tensor(2 * torch.pi))).sum(-1).mean()
    inside = (error.abs() <= 1.96 * variance.sqrt()).double().mean()
    return {
        "rmse": float(error.square().mean().sqrt()),
        "nll": float(nll),
        "inside_95": float(inside),
        "mae": float(error.abs().mean()),
    }


def _rows(names: list[str], p: pt.Prediction, classes: tuple[str, ...]) -> tuple[list[str], list[list[Any]]]:
    unknown = [float("nan")] * len(names) if p.unknown is None else p.unknown.tolist()
    if classes:
        columns = ["input", "class", "confidence", "epistemic", "unknown", *(f"p({c})" for c in classes)]
        sure, label = p.probs.max(-1)
        rows = [
            [name, classes[i], s, e, u, *probs]
            for name, i, s, e, u, probs in zip(
                names, label.tolist(), sure.tolist(), p.epistemic.tolist(), unknown, p.probs.tolist(), strict=True
            )
        ]
        return columns, rows
    if p.mean.shape[-1] != 1:
        raise BadData(f"a table holds one number for each input, and there are {p.mean.shape[-1]}: write an .npz file.")
    half = 1.96 * p.variance.clamp_min(0).sqrt()
    parts = (p.mean, p.mean - half, p.mean + half, p.epistemic, p.aleatoric)
    found = [t.flatten().tolist() for t in parts]
    return (
        ["input", "mean", "low_95", "high_95", "epistemic", "aleatoric", "unknown"],
        [[name, *values] for name, *values in zip(names, *found, unknown, strict=True)],
    )


def write_predictions(path: Path, names: list[str], p: pt.Prediction, classes: tuple[str, ...]) -> None:
    """As a .csv table, or as arrays in an .npz file."""
    if path.suffix == ".csv":
        columns, rows = _rows(names, p, classes)
        text = io.StringIO()
        csv.writer(text).writerows([columns, *rows])
        write_whole(path, text.getvalue())
        return
    arrays: dict[str, Any] = {
        "input": np.array(names),
        "epistemic": p.epistemic.numpy(),
        "aleatoric": p.aleatoric.numpy(),
    }
    arrays |= (
        {"probs": p.probs.numpy(), "classes": np.array(classes)}
        if classes
        else {"mean": p.mean.numpy(), "variance": p.variance.numpy()}
    )
    if p.unknown is not None:
        arrays["unknown"] = p.unknown.numpy()
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez(file, **arrays)


def _check_out(path: Path, suffixes: tuple[str, ...]) -> None:
    """Before an hour of work, not after it."""
    if path.suffix not in suffixes:
        raise BadData(f"{path} ends in {path.suffix or 'nothing'}: {' or '.join(suffixes)} is needed.")


def _brief(columns: list[str], rows: list[list[Any]]) -> tuple[list[str], list[list[str]]]:
    """The table of predictions as printed: no columns of probabilities, and numbers in a few digits."""
    kept = [k for k, name in enumerate(columns) if not name.startswith("p(")]
    # Scores of one fit may differ late.
    digits = [5 if columns[k] == "unknown" else 3 for k in kept]
    short = [
        [f"{row[k]:.{d}g}" if isinstance(row[k], float) else str(row[k]) for k, d in zip(kept, digits, strict=True)]
        for row in rows
    ]
    return [columns[k] for k in kept], short
