"""`posterity certify` and `posterity audit` as a user meets them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from commands import answer, call
from typer.testing import CliRunner

import posterity as pt
from posterity.cli import app
from posterity.lenet import lenet5

run = CliRunner().invoke


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certify")
    torch.manual_seed(0)
    pt.isotropic(lenet5(), 50.0, mean="model", vouched="drawn at random").save(folder / "prior.safetensors")
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=rng.random((40, 1, 28, 28)).astype(np.float32), y=rng.integers(0, 10, 40))
    return folder


def test_a_certificate_is_printed_written_and_audited(files):
    out = files / "c.json"
    prior, data = str(files / "prior.safetensors"), str(files / "data.npz")
    result = run(app, ["certify", prior, data, "--network", "lenet5", "--passes", "2", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "hold-out" in result.output
    record = json.loads(out.read_text())
    assert record["n"] == 40
    assert record["rule"] == "binomial"
    assert "vouched for: drawn at random" in result.output.replace("\n", " ").replace("  ", "")
    again = run(app, ["audit", str(out)])
    assert again.exit_code == 0
    assert f"{record['bound']:.4f}" in again.output
    out.write_text(json.dumps(record | {"bound": 0.001}))
    assert run(app, ["audit", str(out)]).exit_code == 1


@pytest.mark.parametrize(
    ("network", "data"), [("no_such", "data.npz"), ("json:loads", "data.npz"), ("lenet5", "x.npz"), ("lenet5", "cats")]
)
def test_what_cannot_be_found_is_named(files, network, data):
    where = str(files / data) if data == "data.npz" else data
    result = run(app, ["certify", str(files / "prior.safetensors"), where, "--network", network])
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_after_a_new_last_layer_folds_say_more(tmp_path):
    rng = np.random.default_rng(0)
    for name, count, classes in (("many", 60, 2), ("few", 36, 3)):
        y = np.arange(count) % classes
        x = rng.normal(size=(count, 4)) + 3 * np.eye(4)[y]
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.float32), y=y)
    many, few, prior, fit = (str(tmp_path / name) for name in ("many.npz", "few.npz", "prior", "fit"))
    call("prior", "learn", many, "--out", prior, "--epochs", 10, "--network", "mlp", "--quiet")
    call("adapt", prior, few, "--out", fit, "--quiet")
    plain = answer("certify", fit, "--passes", 2, "--quiet")
    folded = answer(
        "certify", fit, "--folds", 2, "--quiet", "--out", tmp_path / "c.json", "--page", tmp_path / "c.html"
    )
    assert 0.05 < folded["bound"] < plain["bound"] - 0.1
    assert call("audit", tmp_path / "c.json")
    assert "<svg" in (tmp_path / "c.html").read_text()
    assert "without a prior" in call("certify", _alone(tmp_path, few), "--folds", 2, "--quiet", code=1).output.replace(
        "\n", " "
    )


def _alone(folder, data):
    call("learn", data, "--out", folder / "alone", "--network", "mlp", "--epochs", 5, "--quiet")
    return folder / "alone"
