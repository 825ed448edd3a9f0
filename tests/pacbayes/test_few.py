"""Fifty examples: the tightest of several ways holds, and Pick-to-Learn's bounds do by simulation."""

from __future__ import annotations

import math

import pytest
import torch
from experiments import too_many
from fifty import DELTAS, Simulated, simulated
from recordings import Recordings

import posterity as pt
from posterity.errors import BadAudit
from posterity.pacbayes import Certificate, certify_few, clopper_pearson
from posterity.pacbayes.bounds import compression_bound, preferent_bound
from posterity.pacbayes.few import PAYS


def test_the_parts_of_delta_sum_to_one():
    assert sum(1 / k for k in PAYS.values()) == 1


def test_in_a_few_simulated_tasks_no_bound_is_violated_too_often():
    found = simulated(4, deltas=(0.05, 0.9))
    for delta, count in found["violated"].items():
        assert not too_many(count, 4, float(delta))


@pytest.mark.slow
@pytest.mark.parametrize("way", [*PAYS, "all"])
def test_in_simulated_tasks_no_way_is_violated_too_often(way):
    found = simulated(100, 1000, tuple(PAYS) if way == "all" else (way,))
    for delta, count in found["violated"].items():
        assert not too_many(count, 100, float(delta))


def picked_threshold(x, y) -> tuple[int, float, list[tuple[int, int, float]]]:
    """Pick-to-Learn of a threshold on a line, in plain Python: how many were picked, the threshold, and every step's errors.

    Learned is the middle between the largest picked 0 and the smallest picked 1; liked least is the farthest on the wrong side.
    """
    place, chosen, steps = 0.5, [], []
    while True:
        rest = [i for i in range(len(x)) if i not in chosen]
        away = {i: (x[i] - place) * (1 if y[i] == 0 else -1) for i in rest}
        wrong = [i for i in rest if away[i] > 0]
        steps.append((len(chosen), len(wrong), place))
        if not wrong:
            return len(chosen), place, steps
        chosen.append(max(wrong, key=lambda i: away[i]))
        low = max((x[i] for i in chosen if y[i] == 0), default=0.0)
        high = min((x[i] for i in chosen if y[i] == 1), default=1.0)
        place = 0.5 * (low + high)


@pytest.mark.parametrize("delta", DELTAS)
def test_pick_to_learn_holds_for_thresholds_on_a_line(delta):
    """A tenth of the labels is turned around; the risk is known from the distance of two thresholds. Both rules, at once."""
    dice = torch.Generator().manual_seed(0)
    n, trials, violated, union, seen = 15, 150, 0, 0, []
    for _ in range(trials):
        truth = float(torch.rand((), generator=dice))
        x = torch.rand(n, generator=dice).tolist()
        turned = (torch.rand(n, generator=dice) < 0.1).tolist()
        y = [int(a > truth) ^ t for a, t in zip(x, turned, strict=True)]
        k, place, steps = picked_threshold(x, y)
        seen.append(k)
        violated += 0.1 + 0.8 * abs(place - truth) > preferent_bound(k, n, delta)
        bounds = [(compression_bound(r, n, j, delta), 0.1 + 0.8 * abs(at - truth)) for j, r, at in steps if j]
        if bounds:
            bound, risk = min(bounds)
            union += risk > bound
    assert max(seen) >= 3
    assert not too_many(violated, trials, delta)
    assert not too_many(union, trials, delta)


def test_a_preferent_bound_solves_its_equation_and_grows_with_what_was_picked():
    for n, delta in ((20, 0.05), (50, 0.3)):
        before = 0.0
        for k in (0, 1, 3, n // 2, n - 1):
            e = preferent_bound(k, n, delta)
            total = sum(math.comb(m, k) / math.comb(n, k) * (1 - e) ** (m - n) for m in range(k, n)) * delta / n
            assert total == pytest.approx(1, abs=1e-4)
            assert before < e
            before = e
        assert preferent_bound(n, n, delta) == 1
        # Nothing picked and no errors: more than a plain test costs, since it could have been otherwise.
        assert preferent_bound(0, n, delta) > clopper_pearson(0, n, delta)


def test_a_compression_bound_pays_for_every_set_that_could_have_been_picked():
    n, delta = 30, 0.05
    assert compression_bound(2, n, 3, delta) == pytest.approx(
        clopper_pearson(2, 27, delta / 12 / math.comb(30, 3)), rel=1e-9
    )
    assert sum(1 / (k * (k + 1)) for k in range(1, 10_000)) < 1


@pytest.mark.parametrize("way", PAYS)
def test_every_way_gives_a_record_that_follows_and_a_predictor(way):
    case = Simulated(1)
    found = certify_few(case.model, case.prior, case.data, case.learner, ways=[way])
    c = found.certificate
    assert Certificate.from_json(c.to_json()) == c
    assert c.recomputed() == pytest.approx(c.bound)
    assert c.grid == (2 if way == "picked" else 1)
    assert found.predict(case.data[0], torch.Generator().manual_seed(0)).shape == (50,)
    raw = c.to_json().replace(f'"bound": {c.bound}', f'"bound": {c.bound / 2}')
    with pytest.raises(BadAudit):
        Certificate.from_json(raw)


def test_the_tightest_way_pays_its_part_and_the_order_leaves_no_trace():
    case = Simulated(2)
    x, y = case.data
    found = certify_few(case.model, case.prior, (x, y), case.learner).certificate
    again = certify_few(case.model, case.prior, (x.flip(0), y.flip(0)), case.learner).certificate
    assert found == again
    assert dict(found.payments)["ways"] in PAYS.values()


def test_groups_are_picked_dealt_and_tested_whole():
    case = Recordings(7, 5)
    sizes = []

    def learner(x, y):
        sizes.append(len(x))
        share = float(y.double().mean())
        return lambda new: torch.tensor([[1 - share, share]]).double().expand(len(new), 2)

    found = certify_few(case.model, case.prior, case.data, learner, groups=case.groups)
    assert all(size % 5 == 0 for size in sizes)
    assert (found.certificate.n, found.certificate.unit) == (10, "group")
    with pytest.raises(pt.PosterityError, match="too few"):
        certify_few(case.model, case.prior, case.more(3, 1)[0], learner)
