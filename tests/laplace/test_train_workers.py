"""Two processes train as one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed
from processes import in_two_processes
from training_worker import runs

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")
FORMS = ["tensors", "dataset", "loader", "dealt"]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What each of two gloo processes found."""
    return in_two_processes(Path(__file__).with_name("training_worker.py"), tmp_path_factory.mktemp("workers"))


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
