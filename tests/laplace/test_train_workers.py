"""Two processes train as one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed
from training_worker import runs

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")
HERE = Path(__file__).parent
FORMS = ["tensors", "dataset", "loader", "dealt"]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    paths = [str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, str(HERE / "training_worker.py")]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "meeting"), str(folder / f"{rank}.pt")],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [p.communicate(timeout=120)[1] for p in processes]
    finally:
        for process in processes:
            process.kill()
    assert [p.returncode for p in processes] == [0, 0], "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.fixture(scope="module")
def one():
    return runs()


@pytest.mark.parametrize("form", [*FORMS, "norm"])
def test_all_workers_end_with_the_same_weights_and_history(two, form):
    (weights, history), (others, other_history) = two[0][form], two[1][form]
    assert history == other_history
    for name, value in weights.items():
        assert torch.equal(value, others[name]), name


@pytest.mark.parametrize("form", ["tensors", "dataset", "loader"])
def test_two_processes_equal_one(one, two, form):
    (expected, lines), (found, other_lines) = one[form], two[0][form]
    for name, value in expected.items():
        assert (found[name] - value).abs().max() < 1e-10, name
    torch.testing.assert_close(torch.tensor(other_lines), torch.tensor(lines), rtol=1e-10, atol=1e-10)


def test_data_dealt_by_its_sampler_is_not_dealt_again(one, two):
    """Batches have the same examples in all: numbers 0, 2, … of a batch with one worker, the rest with the other."""
    (expected, lines), (found, other_lines) = one["dealt"], two[0]["dealt"]
    for name, value in expected.items():
        assert (found[name] - value).abs().max() < 1e-10, name
    torch.testing.assert_close(torch.tensor(other_lines), torch.tensor(lines), rtol=1e-10, atol=1e-10)
