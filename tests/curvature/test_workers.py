"""Several processes end with the result of one, all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed
from curvature_cases import case, data, distance, separable
from curvature_worker import CASES, ESTIMATORS, everything
from processes import in_two_processes

from posterity.curvature import KFAC, Dense, ExactLabels, estimate

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What each of two gloo processes found."""
    return in_two_processes(Path(__file__).with_name("curvature_worker.py"), tmp_path_factory.mktemp("workers"))


@pytest.fixture(scope="module")
def one():
    return everything()


def test_every_worker_has_the_same_result_to_the_bit(two):
    (first, _), (second, _) = two
    assert first.keys() == second.keys()
    for key, blocks in first.items():
        for block, matrix in blocks.items():
            assert torch.equal(matrix, second[key][block]), (key, block)


@pytest.mark.parametrize("label", [label for label in ESTIMATORS if label != "KFOC"])
@pytest.mark.parametrize("name", CASES)
def test_two_processes_equal_one(one, two, name, label):
    key = f"{name} {label}"
    for block, matrix in one[key].items():
        assert distance(two[0][0][key][block].double(), matrix.double()) < 1e-6, block


@pytest.mark.parametrize("name", CASES)
def test_kfoc_of_two_processes_is_no_further_from_the_fisher_than_kfac(two, name):
    dense, kfac = (estimate(case(name).model, data(name), e(ExactLabels()), progress=False) for e in (Dense, KFAC))
    found = two[0][0][f"{name} KFOC"]
    for block in separable(dense.blocks, case(name).model):
        assert distance(found[block], dense[block]) <= distance(kfac[block], dense[block]) * 1.02


@pytest.mark.parametrize("form", ["tensors", "loader", "list", "sampler", "batch sampler"])
def test_no_example_counts_twice_however_the_data_is_dealt(one, two, form):
    expected, found = one["form tensors"], two[0][0][f"form {form}"]
    assert int(found["count"]) == 8
    for block, matrix in expected.items():
        assert distance(found[block].double(), matrix.double()) < 1e-6


def test_workers_with_one_seed_draw_labels_of_their_own(two):
    """Two equal examples on two workers: with equal labels the last layer's Fisher information would have rank one."""
    for seed in range(3):
        values = torch.linalg.eigvalsh(two[0][0][f"sampled {seed}"]["2"])
        assert values[-2] > 1e-6 * values[-1]


def test_two_processes_that_were_stopped_go_on_to_the_result_of_one(two):
    expected = estimate(case("conv", n=8).model, data("conv", n=8), KFAC(ExactLabels()), batch_size=1, progress=False)
    for found, _ in two:
        assert int(found["resumed"]["kept"]) == 1
        assert int(found["resumed"]["count"]) == 8
        for block, matrix in expected.blocks.items():
            assert distance(found["resumed"][block].double(), matrix.dense().double()) < 1e-6


def test_errors_that_all_workers_meet_have_their_names(two):
    assert [named for _, named in two] == [["NoData", "NoData", "BadData"]] * 2
