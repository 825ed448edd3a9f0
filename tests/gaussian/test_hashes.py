"""An example has one hash, however it is stored, batched or ordered."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gaussians import normal
from torch.utils.data import DataLoader, TensorDataset

from posterity.curvature.hashes import data_fingerprint, example_hashes, overlap
from posterity.errors import BadData, NoData

X, Y = normal(50, 1, 4, 4).float(), torch.arange(50) % 10


def test_one_sorted_hash_for_each_example():
    hashes = example_hashes((X, Y))
    assert hashes.dtype == torch.int64
    assert hashes.shape == (50,)
    assert torch.equal(hashes, hashes.sort().values)
    assert len(hashes.unique()) == 50


def test_hashes_do_not_change_between_versions():
    """They stand in files: another value here would make every stored prior blind to its own data."""
    x = torch.tensor([[1.0, 2.0], [0.5, -3.0]])
    assert example_hashes((x, torch.zeros(2))).tolist() == [-6395604652657623105, 3304271515126853448]


@pytest.mark.parametrize("batch_size", [1, 7, 50, 1000])
def test_batches_and_order_leave_no_trace(batch_size):
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    expected = example_hashes((X, Y))
    assert torch.equal(example_hashes((X[order], Y[order]), batch_size), expected)
    dataset = TensorDataset(X, Y)
    assert torch.equal(example_hashes(dataset, batch_size), expected)
    assert torch.equal(example_hashes(DataLoader(dataset, batch_size, shuffle=True)), expected)


def test_the_way_numbers_are_stored_leaves_no_trace():
    expected = example_hashes((X, Y))
    channels_last = X.to(memory_format=torch.channels_last)
    padded = torch.zeros(50, 1, 4, 9)
    padded[..., :8:2] = X
    for x in (X.double(), channels_last, padded[..., :8:2], X.clone().requires_grad_()):
        assert torch.equal(example_hashes((x, Y)), expected)
    assert torch.equal(example_hashes([(X.numpy(), Y.numpy())]), expected)


def test_whole_numbers_equal_the_same_floats():
    x = torch.randint(0, 256, (20, 5), generator=torch.Generator().manual_seed(0))
    expected = example_hashes((x, Y[:20]))
    for dtype in (torch.uint8, torch.int16, torch.float32, torch.float64):
        assert torch.equal(example_hashes((x.to(dtype), Y[:20])), expected)


def test_large_whole_numbers_are_told_apart():
    x = torch.tensor([[2**24], [2**24 + 1], [2**40], [2**40 + 1]])
    alone = torch.cat([example_hashes((row[None], Y[:1])) for row in x]).sort().values
    assert len(alone.unique()) == 4
    assert torch.equal(example_hashes((x, Y[:4])), alone)


def test_zero_has_no_sign():
    assert torch.equal(example_hashes((torch.zeros(1, 3), Y[:1])), example_hashes((-torch.zeros(1, 3), Y[:1])))


def test_targets_do_not_count_and_inputs_and_shapes_do():
    expected = example_hashes((X, Y))
    assert torch.equal(example_hashes((X, Y + 1)), expected)
    assert overlap(expected, example_hashes((X + 1e-4, Y))) == 0
    assert overlap(expected, example_hashes((X.flatten(1), Y))) == 0


def test_named_inputs_go_by_their_names_in_order():
    a, b = X, normal(50, 3, seed=1)
    first = example_hashes([{"a": a, "b": b, "labels": Y}])
    assert torch.equal(example_hashes([{"labels": Y, "b": b, "a": a}]), first)
    assert torch.equal(example_hashes([({"b": b, "a": a}, Y)]), first)
    assert overlap(first, example_hashes([{"a": a, "b": b.flip(0), "labels": Y}])) == 0
    # What is no tensor holds for all examples of a batch and tells none apart.
    assert torch.equal(example_hashes([{"a": a, "b": b, "return_dict": True, "labels": Y}]), first)


def test_several_inputs_in_a_tuple_all_count():
    both = example_hashes([((X, normal(50, 2)), Y)])
    assert overlap(both, example_hashes([((X, normal(50, 2, seed=1)), Y)])) == 0


def test_complex_inputs_are_hashed():
    z = torch.complex(X, X.flip(0))
    assert overlap(example_hashes((z, Y)), example_hashes((z.conj(), Y))) == 0


def test_overlap_counts_those_of_the_second_that_are_in_the_first():
    train, test = example_hashes((X[:30], Y[:30])), example_hashes((X[20:], Y[20:]))
    assert overlap(train, test) == 10
    assert overlap(test, train) == 10
    assert overlap(train, torch.cat([test, test])) == 20
    assert overlap(train, test[:0]) == 0
    assert overlap(train[:0], test) == 0


def test_the_fingerprint_tells_data_apart_and_no_more():
    hashes = example_hashes((X, Y))
    assert data_fingerprint(hashes) == data_fingerprint(hashes.flip(0))
    assert len(data_fingerprint(hashes)) == 32
    assert data_fingerprint(hashes) != data_fingerprint(hashes[1:])


def test_data_that_cannot_be_hashed_is_refused_by_name():
    with pytest.raises(NoData):
        example_hashes((X[:0], Y[:0]))
    with pytest.raises(BadData, match="no tensor"):
        example_hashes([(["a", "b"], Y[:2])])
    with pytest.raises(BadData, match="one row"):
        example_hashes([((X, X[:3]), Y)])
    with pytest.raises(BadData):
        example_hashes([np.zeros(3)])
