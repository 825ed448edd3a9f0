"""One cell: everything about one wearer, or the five networks of the ensemble for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import posterity as pt
from posterity.kernel import BlockFrame
from posterity.pacbayes.bounds import klinv
from posterity_studies.demo.methods import Predictor, adapted, fine_tuned, from_scratch, of_fit, of_network, trained
from posterity_studies.demo.source import at_mean, learn_network, prior_of
from posterity_studies.demo.unknown import unknown_exercise
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.watch import EXERCISES, RATE, WINDOW, Meeting, meet, recordings

MEMBERS = 5
HALF_SECOND = RATE // 2
"""From one prediction on the strip to the next."""
CONFIDENCE = 0.95


def cell(folder: Path, arguments: Arguments, generator: torch.Generator) -> Values:
    """`folder` keeps the priors. Randomness comes from the wearer's number, so that all methods meet the same network."""
    meeting = meet(arguments["wearer"], arguments["unknown"])
    match arguments["part"]:
        case "scores":
            return _scores(folder, meeting, arguments)
        case "unknown":
            return unknown_exercise(folder, meeting, arguments)
        case "ensemble":
            return _ensemble(meeting, arguments)
        case "portrait":
            return _portrait(folder, meeting, arguments)
        case other:
            raise ValueError(f"there is no part {other!r}")


def _scores(folder: Path, meeting: Meeting, arguments: Arguments) -> Values:
    """All methods but the ensemble."""
    prior = prior_of(folder, arguments)
    untouched = measured(meeting, of_network(at_mean(prior)))
    scores: dict[str, dict[str, Any]] = {name: {} for name in ("learned", "isotropic", "tuned", "none", "scratch")}
    chosen: dict[str, dict[str, Any]] = {name: {} for name in ("learned", "isotropic", "tuned", "scratch")}
    for s in arguments["seconds"]:
        key = str(s)
        fit, even = adapted(meeting, prior, s), adapted(meeting, prior, s, shares=(0.0,))
        tuned, chosen["tuned"][key] = fine_tuned(meeting, at_mean(prior), s, arguments["steps"])
        scratch, chosen["scratch"][key] = from_scratch(meeting, s, arguments["steps"])
        chosen["learned"][key], chosen["isotropic"][key] = _strengths(fit), _strengths(even)
        scores["learned"][key] = measured(meeting, of_fit(fit))
        scores["isotropic"][key] = measured(meeting, of_fit(even))
        scores["tuned"][key] = measured(meeting, of_network(tuned))
        scores["scratch"][key] = measured(meeting, of_network(scratch))
        scores["none"][key] = untouched
    windows = {"test": len(meeting.test().y), "unknown": len(meeting.unfamiliar().y)}
    return {"scores": scores, "chosen": chosen, "windows": windows}


def _portrait(folder: Path, meeting: Meeting, arguments: Arguments) -> Values:
    """One wearer from near: half second by half second, what can be promised, and what their prior looks like."""
    prior = prior_of(folder, arguments)
    most = arguments["seconds"][-1]
    fit = adapted(meeting, prior, most)
    return {
        "strip": _strip(meeting, most, of_network(at_mean(prior)), of_fit(fit)),
        "certificate": _certificate(meeting, fit, most),
        "spectrum": _spectrum(prior),
    }


def _ensemble(meeting: Meeting, arguments: Arguments) -> Values:
    """Five networks learned from the nine others, each fine-tuned, their probabilities averaged.

    All take as many steps as serve the first one's left-out windows best.
    """
    first, *others = (learn_network(meeting, member, arguments["epochs"]) for member in range(MEMBERS))
    scores = {}
    for s in arguments["seconds"]:
        tuned, steps = fine_tuned(meeting, first, s, arguments["steps"])
        rest = [trained(other, meeting.shown(s).pair, steps) for other in others]
        scores[str(s)] = measured(meeting, of_network(tuned, *rest))
    return {"scores": {"ensemble": scores}}


def measured(meeting: Meeting, predictor: Predictor) -> dict[str, Any]:
    """Measures on the second half of the wearer's recordings; where confidence and accuracy lie, by bins.

    ECE is computed once more from windows every half second: it is a mean of absolute values, and so few windows that do not
    overlap leave much of it to chance.
    """
    test, often = meeting.test(), meeting.test(HALF_SECOND)
    count = len(test.y)
    answer = predictor(torch.cat([test.x, meeting.unfamiliar().x]))
    found = pt.metrics.score(answer.probs[:count], test.y)
    bins = pt.metrics.reliability(answer.probs[:count], test.y)
    return {
        "accuracy": round(found.accuracy, 5),
        "nll": round(found.nll, 5),
        "ece": round(found.ece, 5),
        "ece_often": round(pt.metrics.score(predictor(often.x).probs, often.y).ece, 5),
        "auroc": round(pt.metrics.ood_auroc(answer.score[:count], answer.score[count:]), 5),
        "reliability": [_rounded(part) for part in (bins.confidence, bins.accuracy, bins.share)],
    }


def _strengths(fit: pt.Fit) -> list[list[float]]:
    """The strengths that were averaged: weight, share of the source, floor."""
    assert fit.choice is not None
    found = []
    for member in fit.choice.members:
        strength = member.posterior.strength
        assert strength is not None
        found.append([round(member.weight, 3), strength.share, strength.floor])
    return found


def _strip(meeting: Meeting, seconds: int, before: Predictor, after: Predictor) -> list[dict[str, Any]]:
    """The second half of each recording of one arm, with what is said of it every half second.

    Doubt is given in ranks: the share of the same wearer's windows of known exercises, between what was shown and the test,
    that score lower.
    """
    rows = []
    names = list(meeting.classes)
    between = torch.cat([_normal(r.signal[:, seconds * RATE : r.signal.shape[1] // 2], meeting) for r in meeting.own])
    usual = {"before": before(between).score, "after": after(between).score}
    for recording in recordings():
        if recording.wearer != meeting.wearer or recording.arm != 1:
            continue
        half = recording.signal[:, recording.signal.shape[1] // 2 :]
        x = _normal(half, meeting)
        row: dict[str, Any] = {
            "exercise": EXERCISES[recording.exercise],
            "known": recording.exercise != meeting.unknown,
            "acceleration": _rounded(half[:3].norm(dim=0)[:: RATE // 10], 2),
        }
        for when, predictor in (("before", before), ("after", after)):
            answer = predictor(x)
            row[f"named_{when}"] = [names[k] for k in answer.probs.argmax(-1).tolist()]
            row[f"doubt_{when}"] = _rounded((answer.score[:, None] > usual[when]).double().mean(1), 2)
        rows.append(row)
    return rows


def _normal(signal: Tensor, meeting: Meeting) -> Tensor:
    """Windows every half second, as the network takes them."""
    if signal.shape[1] < WINDOW:
        return signal.new_zeros(0, len(signal), WINDOW)
    return (signal.unfold(1, WINDOW, HALF_SECOND).transpose(0, 1) - meeting.mean) / meeting.deviation


def _certificate(meeting: Meeting, fit: pt.Fit, seconds: int) -> Mapping[str, Any]:
    """What can be promised of this wearer: by the posterior and what was shown, and by windows that were set aside."""
    test = meeting.test()
    wrong = int((fit.predict(test.x).labels != test.y).sum())
    set_aside = {
        "wrong": wrong,
        "windows": len(test.y),
        "bound": round(klinv(wrong / len(test.y), math.log(1 / (1 - CONFIDENCE)) / len(test.y)), 4),
    }
    try:
        found = fit.certify(
            meeting.shown(seconds).pair, CONFIDENCE, generator=torch.Generator().manual_seed(0), progress=False
        )
    except pt.PosterityError as refusal:
        return {"refused": f"{type(refusal).__name__}: {refusal}", "set_aside": set_aside}
    return {
        "bound": round(found.bound, 4),
        "n": found.n,
        "before": {"error": round(found.holdout.error, 4), "bound": round(found.holdout.bound, 4)},
        "set_aside": set_aside,
    }


def _spectrum(prior: pt.Gaussian) -> dict[str, list[float]]:
    """How firmly each layer's directions are held, from the firmest to the loosest, at 40 places."""
    found = {}
    for name, matrix in prior.precision.items():
        frame = BlockFrame.of(matrix)
        assert frame.source is not None
        values = (frame.share * frame.source + frame.floor).flatten().sort(descending=True).values
        places = torch.linspace(0, 1, 40, dtype=torch.float64)
        found[name] = [float(f"{v:.3g}") for v in torch.quantile(values.flip(0), 1 - places).tolist()]
    return found


def _rounded(values: Tensor | list[float] | tuple[float, ...], digits: int = 4) -> list[float]:
    return [round(float(v), digits) for v in values]
