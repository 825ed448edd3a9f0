"""How the quality study reads its records: pairs, clusters, and what it asks of the default call."""

import pytest
import torch

from posterity_studies import Outcome, Record
from posterity_studies.shared.rivals import ivon, laplace_torch
from posterity_studies.shared.rivals.absent import RivalMissing
from posterity_studies.shared.rivals.training import Budget
from posterity_studies.studies.quality import methods
from posterity_studies.studies.quality.cells import handed_down, watch_network
from posterity_studies.studies.quality.methods import Problem, every_method
from posterity_studies.studies.quality.reading import Setting, lines, results, verdict

LEVEL = {"accuracy": 0.9, "brier": 0.1, "ece": 0.05, "auroc": 0.9, "seconds": 1.0}


def watch(wearer, unknown, default, rival, **changed):
    common = {"kind": "watch", "wearer": wearer, "unknown": unknown}
    ours = {"default": {"nll": default, **LEVEL, **changed}, "isotropic": {"nll": default + 0.1, **LEVEL}}
    rivals = {"map": {"nll": rival, **LEVEL}, "ensemble": {"nll": rival, **LEVEL}, "ivon": {"skipped": "not here"}}
    return [
        Record("quality", f"{wearer}{unknown}o", {**common, "who": "ours"}, {"4": {"examples": 48, **ours}}, 1.0, {}),
        Record(
            "quality", f"{wearer}{unknown}r", {**common, "who": "rivals"}, {"4": {"examples": 48, **rivals}}, 1.0, {}
        ),
    ]


def many(gaps, **changed):
    """gaps[wearer][unknown]: the default's NLL less the rival's."""
    return [r for w, row in enumerate(gaps) for u, gap in enumerate(row) for r in watch(w, u, 1 + gap, 1.0, **changed)]


def test_intervals_are_over_wearers_and_not_over_exercises():
    found = results(many([[0.1, 0.3], [0.2, 0.4], [0.6, 0.0]]))
    gap = found.difference(Setting("watch", "watch", "4"), "default", "map")
    # Wearers' means are 0.2, 0.3 and 0.3: t(2) = 4.303, deviation 0.0577.
    assert gap.mean == pytest.approx(0.8 / 3)
    assert gap.half == pytest.approx(4.303 * 0.057735 / 3**0.5, rel=1e-3)


def test_only_pairs_that_both_have_are_compared():
    records = [*many([[0.1], [0.1], [0.1]]), watch(9, 0, 50.0, 1.0)[0]]
    gap = results(records).difference(Setting("watch", "watch", "4"), "default", "map")
    assert gap.mean == pytest.approx(0.1)


def test_a_method_that_was_skipped_has_no_figures():
    found = results(many([[0.1], [0.1]]))
    assert found.mean(Setting("watch", "watch", "4"), "ivon", "nll") is None


def holds(records):
    return {line.asked.split(" ")[0]: line.holds for line in lines(records)}


def test_every_line_turns():
    good = holds(many([[-0.2], [-0.21], [-0.19]], auroc=0.96))
    assert good == {"NLL": True, "ECE": True, "Learned": False, "AUROC": True}
    bad = holds(many([[0.2], [0.21], [0.19]], auroc=0.94, ece=0.11))
    assert bad == {"NLL": False, "ECE": False, "Learned": False, "AUROC": False}


def test_nothing_is_said_for_the_claim_on_few_wearers():
    few, enough = (many([[-0.2 + 0.01 * w] for w in range(n)]) for n in (4, 5))
    assert verdict(few).outcome == Outcome.unsupported
    assert "Too few" in verdict(few).why
    assert verdict(enough).outcome == Outcome.ours


@pytest.fixture(scope="module")
def problem():
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(24, 6, 1, 100, generator=draw), torch.arange(24) % 3
    starts = [watch_network(3, seed) for seed in range(2)]
    prior = handed_down(starts[0], (x, y), ("a", "b", "c"), 0)
    return Problem(
        starts, (x[:12], y[:12]), (x, y), x + 1, Budget(3, 1e-3), 0, prior, ("a", "b", "c"), all_layers=False
    )


def test_ours_has_the_default_call_the_isotropic_prior_and_the_mode(problem):
    found = every_method(problem, "ours")
    assert list(found) == ["default", "adapt", "isotropic", "mode"]
    assert all(set(LEVEL) | {"nll"} <= set(values) for values in found.values())
    assert all(share == 0 for _, share, *_ in found["isotropic"]["chosen"])


def test_a_rival_that_is_not_installed_leaves_its_reason(problem, monkeypatch):
    def missing(*_, **__):
        raise RivalMissing("it is not installed")

    monkeypatch.setattr(ivon, "outputs", missing)
    monkeypatch.setattr(laplace_torch, "classifier", missing)
    found = every_method(problem, "rivals")
    skipped = [name for name, values in found.items() if "skipped" in values]
    assert skipped == ["laplace marglik", "laplace gridsearch", "ivon"]
    assert found["ensemble"]["seconds"] >= 0
    assert set(found) <= set(methods.NAMES)
