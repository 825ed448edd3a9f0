"""The demo runs from recordings to page, resumes, and claims only what its figures show; its page fits a phone and a desk."""

import math
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from posterity.cli import app
from posterity_studies.demo import doubts, findings, headline, study, table, typical
from posterity_studies.demo.methods import METHODS, fine_tuned
from posterity_studies.demo.reading import (
    PublishedAccuracy,
    boldness,
    lead,
    on_calibration,
    on_published,
    pooled_ece,
    share,
    winner,
)
from posterity_studies.demo.showing import markdown
from posterity_studies.demo.source import network, turned
from posterity_studies.engine.declaration import Preset, Record
from posterity_studies.engine.ledger import Ledger
from posterity_studies.folders import SHIPPED
from posterity_studies.shared.intervals import Interval
from posterity_studies.shared.known_inputs import RIVALS
from posterity_studies.shared.watch import meet

HERE = pytest.mark.skipif(not find_spec("seglearn"), reason="the recordings come with posterity-studies[demo]")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WITH_BROWSER = pytest.mark.skipif(BROWSER is None, reason="no Chromium here to look at the page with")

# Windows of a headless Chromium are never narrower than 500 pixels: a frame is.
FRAME = """<!doctype html><body style="margin:0"><iframe src="{page}" style="border:0;width:{width}px;height:900px"></iframe>
<script>addEventListener("message", event => document.title = event.data)</script></body>"""
REPORT = """<script>addEventListener("load", () => parent.postMessage([
  innerWidth,
  document.documentElement.scrollWidth,
  getComputedStyle(document.body).backgroundColor,
  [...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().height < 4).length,
  Math.min(...[...document.querySelectorAll("p,td,li,h2")].map(e => parseFloat(getComputedStyle(e).fontSize))),
].join("|"), "*"))</script></body>"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    if not find_spec("seglearn"):
        pytest.skip("the recordings come with posterity-studies[demo]")
    folder = tmp_path_factory.mktemp("demo")
    command = ["demo", "--preset", "smoke", "--workers", "1", "--out", str(folder)]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    return folder, command, first.output


def test_smoke_run_prints_one_sentence_first_then_one_table(ran):
    folder, _, output = ran
    assert len((folder / "demo.jsonl").read_text().splitlines()) == len(study(folder, near=1).cells(Preset.smoke)) == 5
    flat = " ".join(output.split())
    said, shown = flat.index("a watch that never met its wearer"), flat.index("A new wearer, mean over 2")
    assert said < shown
    for method in METHODS:
        assert (METHODS[method] in flat) == (method != "ensemble")


def test_page_needs_nothing_but_itself(ran):
    text = (ran[0] / "index.html").read_text()
    assert not re.search(r"(?:src|href)=[\"']?(?!#)(?:https?:|//|\w+[./])", text)
    assert not re.search(r"url\((?!#)", text)
    assert text.count("<svg") == text.count("</svg>")
    identities = re.findall(r'\bid="([^"]+)"', text)
    assert len(identities) == len(set(identities))


def test_no_word_of_the_trade_above_the_fold(ran):
    text = (ran[0] / "index.html").read_text()
    fold = re.sub(
        r"<svg.*?</svg>|<style>.*?</style>|<[^>]+>", " ", text[: text.index("<div class='panels")], flags=re.DOTALL
    )
    for word in ("NLL", "ECE", "AUROC", "posterior", "covariance", "Laplace", "PAC"):
        assert word not in fold


def test_second_run_computes_nothing_and_makes_the_same_page(ran):
    folder, command, _ = ran
    before = (folder / "index.html").read_bytes(), (folder / "demo.jsonl").read_bytes()
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0
    assert ((folder / "index.html").read_bytes(), (folder / "demo.jsonl").read_bytes()) == before


def test_the_five_lines_of_the_page_run_and_give_probabilities(ran, capsys):
    output = ran[2]
    lines = output[output.index("import posterity as pt") : output.index("Page:")]
    exec(lines, {})
    assert "tensor([[" in capsys.readouterr().out
    assert len(lines.strip().splitlines()) == 5


@HERE
def test_a_turned_watch_keeps_lengths_and_angles():
    meeting = meet(1)
    x = meeting.shown(4).x
    other = turned(x, meeting, torch.Generator().manual_seed(0))
    before, after = (y * meeting.deviation + meeting.mean for y in (x, other))
    for part in (slice(0, 3), slice(3, 6)):
        torch.testing.assert_close(before[:, part].norm(dim=1), after[:, part].norm(dim=1))
    dot = [(y[:, :3] * y[:, 3:]).sum(1) for y in (before, after)]
    torch.testing.assert_close(*dot, rtol=1e-3, atol=1e-3)
    assert (before - after).abs().max() > 0.1


@HERE
def test_fine_tuning_chooses_its_steps_by_what_was_left_out_and_leaves_the_start_alone():
    meeting, start = meet(1), network(seed=1)
    weights = [p.clone() for p in start.parameters()]
    _, steps = fine_tuned(meeting, start, 8, steps=(0, 40), rate=3e-3)
    assert steps == 40  # an untrained network is at chance: any training serves what was left out
    _, steps = fine_tuned(meeting, start, 8, steps=(0, 3), rate=10.0)
    assert steps == 0
    assert all(torch.equal(a, b) for a, b in zip(weights, start.parameters(), strict=True))


def record(method, wearer, nll, accuracy=0.9, auroc=0.9):
    found = {
        "nll": nll,
        "accuracy": accuracy,
        "ece": 0.1,
        "ece_often": 0.05,
        "auroc": auroc,
        "reliability": [[0.9], [0.9], [1.0]],
    }
    arguments = {"part": "scores", "wearer": wearer, "unknown": 6, "seconds": [8]}
    return Record("demo", f"{method}{wearer}", arguments, {"scores": {method: {"8": found}}}, 0, {})


def doubted(wearer, unknown, ours, plain, mean=0.5):
    """Energy is the best plain score, and better by .1 where the nine are compared with too."""
    scores = {where: dict.fromkeys(RIVALS, 0.4) | {"energy": plain - less} for where, less in
              (("shown", 0.1), ("shown and the nine", 0.0))}  # fmt: skip
    values = {"ours": ours, "alarms": 0.04, "found": 0.6, "means": {"abduction": 0.4, "pendulum": mean},
              "same network": scores, "fine-tuned": scores}  # fmt: skip
    arguments = {"part": "unknown", "wearer": wearer, "unknown": unknown, "seconds": [8]}
    return Record("demo", f"unknown{wearer}-{unknown}", arguments, values, 0, {})


def results(gap, points=0.05, auroc=0.4):
    """Wearers differ much, methods by a little within a wearer."""
    made = [doubted(w, e, 0.9 - 0.001 * w, 0.9 - auroc, 0.5 + 0.1 * w) for w in range(5) for e in (5, 6)]
    made += [record("learned", w, w, 0.85 + 0.01 * w, 0.9 - 0.001 * w) for w in range(5)]
    for rival in ("isotropic", "tuned", "none"):
        made += [record(rival, w, w + gap + 0.001 * w, 0.85 + 0.01 * w - points, 0.9 - auroc) for w in range(5)]
    return made


def test_differences_are_paired_by_wearer():
    found = lead(results(0.1), "isotropic", 8, "nll")
    assert found.mean == pytest.approx(-0.102)
    assert found.half == pytest.approx(2.776 * 0.00158114 / 5**0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("gap", "words"), [(0.1, "better beyond"), (-0.1, "worse beyond"), (-0.002, "not to be distinguished")]
)
def test_findings_follow_the_figures_whichever_way_they_fall(gap, words):
    assert all(words in sentence for sentence in findings(results(gap))[:3])


@pytest.mark.parametrize(
    ("points", "auroc", "words", "absent"),
    [
        (0.05, 0.4, "87 % of new windows instead of 82 % (+5.0", "cannot tell"),
        (-0.05, 0.4, "87 % of new windows instead of 92 % (-5.0", "nothing"),
        (0.05, 0.4, "better than the best of 10 plain scores", "worse than"),
        (0.05, -0.05, "worse than the best of 10 plain scores", "better than"),
        (0.05, 0.002, "level with the best of 10 plain scores", "better than"),
        (0.0, 0.4, "so few wearers cannot tell from chance", "level with"),
    ],
)
def test_headline_follows_the_figures_whichever_way_they_fall(points, auroc, words, absent):
    said = headline(results(0.1, points, auroc))
    assert words in said
    assert absent not in said


def test_plain_scores_are_compared_with_what_serves_them_better_and_paired_by_wearer():
    found = doubts.best(doubts.asked(results(0.1)), "same network")
    assert found.name == "energy"
    assert found.mean == pytest.approx(0.5)
    assert found.lead.mean == pytest.approx(0.398)
    assert found.lead.half == pytest.approx(2.776 * 0.00158114 / 5**0.5, rel=1e-3)
    first, second = doubts.sentences(results(0.1))
    assert "0.898; the best of 10 plain scores in hindsight on the same network 0.500 (energy; lead +0.398" in first
    assert "0.40 to 0.70 (pendulum, trapezius row unknown); of the 20 exercises of single wearers" in second
    assert "4 are above 0.7" in second


def test_the_published_gap_is_closed_in_part():
    assert share(93.5, PublishedAccuracy(10, 99.0, 88.0)) == pytest.approx(50)
    assert "87.0 % of windows are right" in on_published(results(0.1))


def test_the_wearer_in_the_middle_is_shown():
    assert typical(results(0.1)) == 2


def test_a_perfectly_calibrated_predictor_has_the_ece_of_chance():
    from posterity_studies.demo.reading import _absolute_deviation

    for n, p in ((1, 0.3), (7, 0.5), (40, 0.93)):
        exact = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) * abs(k - n * p) for k in range(n + 1))
        assert _absolute_deviation(n, p) == pytest.approx(exact, rel=1e-9)
    assert _absolute_deviation(0, 0.5) == _absolute_deviation(3, 1.0) == 0


def test_what_is_off_for_one_wearer_and_not_for_another_cancels_in_the_pooled_error():
    """Two wearers, too sure and not sure enough by as much."""
    made = []
    for wearer, right in ((1, 0.7), (2, 0.9)):
        found = {"accuracy": right, "ece_often": 0.123, "reliability": [[0.8], [right], [1.0]]}
        values = {"scores": {"learned": {"8": found}}, "windows": {"test": 100}}
        made.append(Record("demo", str(wearer), {"part": "scores", "wearer": wearer, "seconds": [8]}, values, 0, {}))
    assert pooled_ece(made, "learned", 8) == pytest.approx(0, abs=1e-12)
    assert pooled_ece(made[:1], "learned", 8) == pytest.approx(0.1)
    found = boldness(made, "learned", 8)
    assert found.mean.mean == pytest.approx(0, abs=1e-12)
    assert found.between == pytest.approx(0.1 * 2**0.5)
    assert found.by_chance == pytest.approx(0.04)  # √(0.8 · 0.2 / 100)
    assert "it is 0.123; all wearers' windows together, 0.000." in on_calibration(made)


def test_winner_knows_which_measures_should_be_high():
    assert winner(Interval(-0.2, 0.1), "nll") == 1
    assert winner(Interval(-0.2, 0.1), "accuracy") == -1
    assert winner(Interval(0.1, 0.2), "accuracy") == 0


def test_the_table_marks_what_is_beyond_the_interval():
    rows = {row[0]: row[1:] for row in table(results(0.1)).rows}
    assert rows["learned prior"][:2] == ["8 s", "2.000 "]
    assert rows["plain fine-tuning"][1] == "2.102▲"
    assert rows["plain fine-tuning"][3] == "0.100 "


def test_the_page_of_results_shows_the_committed_results():
    book = Ledger(SHIPPED / "demo.jsonl")
    assert not book.missing(study(SHIPPED).cells(Preset.cpu))
    records = book.of(study(SHIPPED).cells(Preset.paper))
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
    assert markdown(records) in text
    assert doubts.markdown(records) in text
    assert all(sentence in text for sentence in doubts.sentences(records))


def look(page, folder, width, *flags):
    """What a browser makes of the page: (width, needed width, background, flat drawings, smallest letters)."""
    probed = folder / "probed.html"
    probed.write_text(page.read_text().replace("</body>", REPORT))
    framed = folder / "framed.html"
    framed.write_text(FRAME.format(page=probed.as_uri(), width=width))
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1400,1000",
        "--virtual-time-budget=4000",
    ]
    done = subprocess.run(
        [*command, *flags, "--dump-dom", framed.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    title = re.search("<title>(.*?)</title>", done.stdout)
    assert title, done.stderr
    width, needed, background, flat, letters = title.group(1).split("|")
    return int(width), int(needed), background, int(flat), float(letters)


@WITH_BROWSER
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_scrolls_sideways_and_every_drawing_is_seen(ran, tmp_path, width):
    shown, needed, _, flat, letters = look(ran[0] / "index.html", tmp_path, width)
    assert shown == width
    assert needed <= width
    assert flat == 0
    assert letters >= 13


@WITH_BROWSER
def test_light_is_light_and_dark_is_dark(ran, tmp_path):
    light = look(ran[0] / "index.html", tmp_path, 390)[2]
    dark = look(ran[0] / "index.html", tmp_path, 390, "--force-dark-mode")[2]
    brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (light, dark)]
    assert brightness[0] > 700
    assert brightness[1] < 100
