"""How well an exercise that no one taught is found: the library's score beside what others would write, on the same networks."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

import posterity as pt
from posterity_studies.demo.methods import adapted, fine_tuned
from posterity_studies.demo.source import at_mean, prior_of
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.known_inputs import RIVALS, LayerInputs, Problem, seen
from posterity_studies.shared.watch import Meeting

UNKNOWN = 6
"""The bent-over row, which the page shows as the unknown one; figures are of each of the seven in turn."""
RATE = 0.05


def unknown_exercise(folder: Path, meeting: Meeting, arguments: Arguments) -> Values:
    """One wearer, one exercise kept from everybody, with the most seconds of labels.

    Rivals score the very network that the library predicts with (energy and probabilities by its own prediction), and the
    one that was fine-tuned. Each has the shown windows to compare with, and once more those of the nine others too.
    """
    prior, seconds = prior_of(folder, arguments), arguments["seconds"][-1]
    fit = adapted(meeting, prior, seconds)
    tuned, _ = fine_tuned(meeting, at_mean(prior), seconds, arguments["steps"])
    test, unfamiliar = meeting.test(), meeting.unfamiliar().x
    inside, outside = fit.predict(test.x), fit.predict(unfamiliar)
    assert inside.unknown is not None
    assert outside.unknown is not None
    return {
        "ours": _auroc(inside.unknown, outside.unknown),
        "alarms": round(float(inside.alarm(RATE).double().mean()), 4),
        "found": round(float(outside.alarm(RATE).double().mean()), 4),
        "means": {name: round(float(inside.unknown[test.y == k].mean()), 4) for k, name in enumerate(meeting.classes)},
        "mean of the unknown": round(float(outside.unknown.mean()), 4),
        "same network": _rivals(meeting, seconds, at_mean(prior), fit),
        "fine-tuned": _rivals(meeting, seconds, tuned),
    }


def _rivals(
    meeting: Meeting, seconds: int, network: nn.Module, fit: pt.Fit | None = None
) -> dict[str, dict[str, float]]:
    """AUROC of each rival by what it is compared with."""

    def looked_at(x: Tensor) -> LayerInputs:
        features, logits = seen(network, x)
        return LayerInputs(features, logits if fit is None else fit.predict(x).logits)

    shown, new, other = meeting.shown(seconds), looked_at(meeting.test().x), looked_at(meeting.unfamiliar().x)
    known, others = looked_at(shown.x), seen(network, meeting.source().x)[0]
    found = {}
    for name, source in (("shown", None), ("shown and the nine", others)):
        problem = Problem(known, shown.y, [], new, {}, 0.0, source)
        scores = {rival: of(problem) for rival, of in RIVALS.items()}
        found[name] = {rival: _auroc(score(new), score(other)) for rival, score in scores.items()}
    return found


def _auroc(inside: Tensor, outside: Tensor) -> float:
    return round(pt.metrics.ood_auroc(inside, outside), 5)
