"""From data to certificate and page on the command line, each step in a call of its own."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
import torch
from commands import answer, call, images, table
from safetensors import safe_open

import posterity as pt
from posterity.cli.networks import build
from posterity.cli.saved import open_saved

pytest.importorskip("PIL", reason="folders of images need Pillow")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A prior from three classes, adapted to two others with six images each."""
    folder = tmp_path_factory.mktemp("world")
    images(folder / "source", ["a", "b", "c"], 30)
    images(folder / "few", ["x", "y"], 6, seed=1)
    images(folder / "test", ["x", "y"], 10, seed=2)
    call(
        "prior",
        "learn",
        folder / "source",
        "--size",
        8,
        "--network",
        "mlp",
        "--epochs",
        4,
        "--out",
        folder / "prior",
        "--quiet",
    )
    told = call("adapt", folder / "prior", folder / "few", "--out", folder / "fit", "--quiet").stdout
    assert "holds the training examples" in told.replace("\n", " ")
    return folder


def test_a_prior_is_a_file_without_examples_and_a_fit_is_one_with_them(world):
    assert pt.load(world / "prior").card.classes == ("a", "b", "c")
    with safe_open(world / "prior", "pt") as prior, safe_open(world / "fit", "pt") as fit:
        assert not any(name.startswith("examples/") for name in prior.keys())  # noqa: SIM118 (no mapping)
        assert fit.get_tensor("examples/inputs/0").shape == (12, 1, 8, 8)


def test_a_fit_of_the_command_line_is_one_of_the_library(world):
    found = np.load(_npz(world))
    fit = pt.load(world / "fit", build("mlp", (1, 8, 8), 2))
    assert fit.classes == ("x", "y")
    expected = fit.predict(torch.as_tensor(_pixels(world / "test")), generator=torch.Generator().manual_seed(0))
    assert np.array_equal(found["probs"], expected.probs.numpy())


@pytest.mark.slow
def test_predictions_are_those_of_the_library(world):
    found = np.load(_npz(world))
    x = torch.as_tensor(_pixels(world / "test"))
    few = torch.as_tensor(_pixels(world / "few"))
    torch.manual_seed(0)
    model = build("mlp", (1, 8, 8), 2)
    fit = pt.adapt(model, (few, ["x"] * 6 + ["y"] * 6), pt.load(world / "prior"), progress=False)
    expected = fit.predict(x, generator=torch.Generator().manual_seed(0))
    assert np.allclose(found["probs"], expected.probs.numpy(), atol=1e-5)
    assert np.allclose(found["unknown"], expected.unknown.numpy(), atol=1e-5)
    assert found["classes"].tolist() == ["x", "y"]


def _npz(world):
    call("predict", world / "fit", world / "test", "--out", world / "p.npz", "--quiet")
    return world / "p.npz"


def _pixels(folder):
    from PIL import Image

    return np.stack([np.asarray(Image.open(p), dtype=np.float32)[None] / 255 for p in sorted(folder.rglob("*.png"))])


def test_predictions_as_csv_have_probabilities_epistemic_and_unknown(world):
    call("predict", world / "fit", world / "test", "--out", world / "p.csv", "--page", world / "p.html", "--quiet")
    with (world / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["input", "class", "confidence", "epistemic", "unknown", "p(x)", "p(y)"]
    assert len(rows) == 20
    assert rows[0]["input"].startswith("x/")
    assert all(abs(float(r["p(x)"]) + float(r["p(y)"]) - 1) < 1e-4 for r in rows)
    assert "<svg" in (world / "p.html").read_text()


@pytest.mark.slow
def test_evaluation_prints_json_alone_and_writes_a_page(world):
    page = world / "e.html"
    found = answer("evaluate", world / "fit", world / "test", "--unknown", world / "source", "--page", page)
    assert found["count"] == 20
    assert found["accuracy"] >= 0.8
    assert {"nll", "ece", "brier", "unknown_auroc", "error_at_most_95"} <= set(found)
    text = page.read_text()
    for name in ("reliability", "accuracy over coverage", "confusion matrix", "scores for unknown inputs"):
        assert f'aria-label="{name}"' in text
    assert len(re.findall("<svg", text)) == 5
    assert not re.findall(r"(?:src|href)=[\"']?https?:", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_a_fit_certifies_by_its_own_examples_and_the_record_audits(world):
    record, page = world / "c.json", world / "c.html"
    found = answer("certify", world / "fit", "--out", record, "--page", page, "--passes", 5)
    assert 0 < found["bound"] <= 1
    assert found["n"] == 12
    assert "where the bound is lost" in page.read_text()
    assert f"{found['bound']:.4f}" in call("audit", record).stdout


@pytest.mark.slow
def test_a_certificate_that_would_not_hold_has_an_exit_code_of_its_own(world):
    images(world / "seen", ["a", "b", "c"], 30)
    call(
        "learn",
        world / "seen",
        "--size",
        8,
        "--network",
        "mlp",
        "--epochs",
        2,
        "--prior",
        world / "prior",
        "--out",
        world / "again",
        "--quiet",
    )
    result = call("certify", world / "again", world / "seen", code=3)
    assert result.stderr.splitlines()[-1].startswith("Overlap: ")


def test_priors_are_inspected_and_compared(world):
    found = answer("prior", "inspect", world / "prior", "--page", world / "prior.html")
    assert found["card"]["classes"] == ["a", "b", "c"]
    assert "<svg" in (world / "prior.html").read_text()
    apart = answer("prior", "compare", world / "prior", world / "fit")
    assert set(apart["blocks"]) == {"1", "3"}
    assert apart["only_in_one"] == ["5"]
    same = answer("prior", "compare", world / "prior", world / "prior")
    assert all(abs(b["kl"]) < 1e-6 and b["distance"] == 0 for b in same["blocks"].values())


@pytest.mark.slow
def test_a_regression_from_a_table_predicts_in_its_own_units(tmp_path):
    train, test = table(tmp_path / "train.csv", 80), table(tmp_path / "test.csv", 40, seed=1)
    call(
        "learn",
        train,
        "--target",
        "price",
        "--out",
        tmp_path / "fit",
        "--epochs",
        60,
        "--quiet",
        "--page",
        tmp_path / "f.html",
    )
    found = answer("evaluate", tmp_path / "fit", test, "--page", tmp_path / "e.html")
    assert found["rmse"] < 12  # the target's standard deviation is about 21
    assert found["inside_95"] > 0.8
    call("predict", tmp_path / "fit", test, "--out", tmp_path / "p.csv", "--quiet")
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert 80 < np.mean([float(r["mean"]) for r in rows]) < 140
    assert all(float(r["low_95"]) < float(r["mean"]) < float(r["high_95"]) for r in rows)


@pytest.mark.slow
def test_a_fit_without_a_prior_predicts_the_same_in_another_process(tmp_path):
    data = images(tmp_path / "few", ["x", "y"], 8)
    found = answer("learn", data, "--size", 8, "--network", "mlp", "--epochs", 5, "--out", tmp_path / "fit")
    assert found["plan"]["ways"] == ["one network"]
    opened = open_saved(tmp_path / "fit")
    x, y = opened.examples().data
    torch.manual_seed(0)
    fit = pt.learn(
        build("mlp", (1, 8, 8), 2), (x, y), likelihood=pt.Categorical(), classes=("x", "y"),
        training={"epochs": 5}, generator=torch.Generator().manual_seed(0), progress=False,
    )  # fmt: skip
    again = opened.fit()
    seeds = (torch.Generator().manual_seed(1) for _ in range(2))
    first, second = (f.predict(x, generator=g) for f, g in zip((fit, again), seeds, strict=True))
    assert torch.allclose(first.probs, second.probs, atol=1e-5)
    assert torch.allclose(first.unknown, second.unknown, atol=1e-5)


def test_a_damaged_file_is_refused(world, tmp_path):
    content = (world / "fit").read_bytes()
    (tmp_path / "forged").write_bytes(content.replace(b"mlp", b"abc"))
    (tmp_path / "cut").write_bytes(content[:-100])
    for name in ("forged", "cut"):
        assert call("predict", tmp_path / name, world / "test", code=1).stderr.startswith("DamagedFile: ")


def test_a_fit_of_another_network_and_a_prior_are_refused_by_name(world, tmp_path, monkeypatch):
    wrong = call("predict", world / "fit", world / "test", "--network", "resnet8", code=1).stderr
    assert wrong.startswith("OtherNetwork: ")
    assert "posterity adapt" in call("predict", world / "prior", world / "test", code=1).stderr


def test_a_network_that_is_code_has_to_be_named_again(world, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef net(shape, outputs):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))\n"
    )
    monkeypatch.chdir(tmp_path)
    told = call("learn", world / "few", "--size", 8, "--network", "mine:net", "--epochs", 2, "--out", "fit")
    assert "code of yours" in told.stderr
    assert "--network mine:net" in call("predict", "fit", world / "test", code=1).stderr
    assert "code of yours" in call("predict", "fit", world / "test", "--network", "mine:net").stderr


def test_dry_run_reads_nothing_and_writes_nothing(world):
    found = answer("learn", world / "source", "--size", 8, "--out", world / "never", "--dry-run")
    assert found["dry_run"]
    assert found["examples"] == 90
    assert found["outputs"] == 3
    assert found["memory_bytes"] > 1e5
    assert found["seconds"] > 0
    assert found["plan"]["ways"] == ["networks from scratch"]
    assert not (world / "never").exists()


def test_dry_run_shows_the_plan_that_learning_then_follows(world, tmp_path):
    for command in (
        ("adapt", world / "prior", world / "few"),
        ("learn", world / "few", "--prior", world / "prior"),
        ("learn", world / "few", "--size", 8, "--epochs", 2),
        ("learn", table(tmp_path / "t.csv", 30), "--target", "price", "--epochs", 2),
    ):
        planned = answer(*command, "--out", tmp_path / "fit", "--dry-run")["plan"]
        found = answer(*command, "--out", tmp_path / "fit", "--overwrite", "--quiet")["plan"]
        # How much each candidate weighs is known once they are there.
        found["reasons"] = [reason for reason in found["reasons"] if not reason.startswith("weights: ")]
        assert found == planned
        assert planned["reasons"]


def test_a_one_line_error_and_debug_with_the_traceback(world):
    short = call("predict", world / "nowhere", world / "test", code=1)
    assert len(short.stderr.splitlines()) == 1
    assert short.stderr.startswith("MissingFile: ")
    assert short.stdout == ""
    long = call("predict", world / "nowhere", world / "test", "--debug", code=1)
    assert "Traceback" in long.stderr


def test_wrong_usage_is_two_and_a_bug_is_four(world, monkeypatch):
    call("predict", code=2)
    call("learn", world / "few", "--no-such", code=2)
    monkeypatch.setattr("posterity.cli.using.open_saved", lambda path: {}["nothing"])
    told = call("predict", world / "fit", world / "test", code=4).stderr
    assert told == "KeyError: 'nothing' (not foreseen: --debug shows where)\n"


def test_nothing_is_overwritten_unasked(world, tmp_path):
    assert "--overwrite" in call("adapt", world / "prior", world / "few", "--out", world / "fit", code=1).stderr
    call("adapt", world / "prior", world / "few", "--out", tmp_path, "--overwrite", code=2)


def test_data_is_inspected_and_split(world, tmp_path):
    assert answer("data", "inspect", world / "source", "--size", 8)["classes"] == {"a": 30, "b": 30, "c": 30}
    found = answer("data", "split", world / "source", tmp_path / "few", tmp_path / "rest", "--per-class", 4)
    assert sorted(found.values()) == [12, 78]
    assert answer("data", "inspect", tmp_path / "few", "--size", 8)["classes"] == {"a": 4, "b": 4, "c": 4}
    assert json.loads(call("data", "inspect", table(tmp_path / "t.csv"), "--json").stdout)["shape"] == [4]
