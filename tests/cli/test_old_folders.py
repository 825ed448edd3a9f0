"""Folders that an earlier version wrote (`old_folders/`, with what it predicted) still open, and predict what they did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import answer, call

import posterity as pt
from posterity.cli.saved import open_saved
from posterity.errors import BadFitFolder
from posterity.workflow.old_folders import OldFolder

OLD = Path(__file__).parent / "old_folders"
KNOWN = json.loads((OLD / "told.json").read_text())
NETWORK = """
from torch import nn
def net(shape, outputs):
    return nn.Sequential(nn.Linear(shape[0], 3), nn.Tanh(), nn.Linear(3, outputs))
"""


@pytest.fixture(autouse=True)
def own_network(tmp_path, monkeypatch):
    """They were learned with a network that is code."""
    (tmp_path / "tiny.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(("name", "data"), [("alone", "new"), ("averaged", "new"), ("siblings", "new_numbers")])
def test_a_fit_predicts_as_it_did(name, data, tmp_path):
    out = tmp_path / "p.npz"
    call("predict", OLD / name, OLD / f"{data}.csv", "--network", "tiny:net", "--out", out, "--quiet")
    found = np.load(out)
    for key, value in KNOWN[name].items():
        np.testing.assert_allclose(found[key], value, rtol=2e-3, atol=2e-5, err_msg=key)


def test_an_estimator_predicts_as_it_did():
    model = pt.PosteriorClassifier.load(OLD / "estimator")
    rows = [line.split(",") for line in (OLD / "few.csv").read_text().splitlines()[1:]]
    X = np.array([[float(a), float(b)] for a, b, _ in rows])
    np.testing.assert_allclose(model.predict_proba(X), KNOWN["estimator"]["probs"], rtol=2e-3, atol=2e-5)
    np.testing.assert_array_equal(model.predict_set(X, 0.8), KNOWN["estimator"]["sets"])


def test_a_prior_is_adapted_and_a_fit_hands_its_posterior_down(tmp_path):
    for name in ("prior", "averaged"):
        fit = tmp_path / f"{name}.fit"
        call("adapt", OLD / name, OLD / "few.csv", "--network", "tiny:net", "--out", fit, "--quiet")
        assert open_saved(fit).said.recipe == open_saved(OLD / name).said.recipe
    assert answer("prior", "inspect", OLD / "prior")["card"]["classes"] == ["old", "young"]


def test_what_the_manifest_does_not_list_is_refused(tmp_path):
    """One folder copied over another: the rest of the older one would speak."""
    shutil.copytree(OLD / "averaged", tmp_path / "mixed")
    shutil.copytree(OLD / "alone", tmp_path / "mixed", dirs_exist_ok=True)
    with pytest.raises(BadFitFolder, match=r"given\.safetensors is not in the manifest"):
        OldFolder.read(tmp_path / "mixed")


@pytest.mark.parametrize("file", ["manifest.json", "examples.safetensors", "weights.safetensors"])
def test_a_folder_that_was_changed_is_refused(file, tmp_path):
    shutil.copytree(OLD / "alone", tmp_path / "copy")
    path = tmp_path / "copy" / file
    content = path.read_bytes()
    path.write_bytes(content.replace(b"tiny:net", b"os:abort") if file == "manifest.json" else content[:-1] + b"\x07")
    with pytest.raises(BadFitFolder, match="not as it was written"):
        OldFolder.read(tmp_path / "copy")


def test_a_folder_is_not_written_over():
    told = call("adapt", OLD / "prior", OLD / "few.csv", "--network", "tiny:net", "--out", OLD / "prior", code=2).stderr
    assert "is a directory" in told
