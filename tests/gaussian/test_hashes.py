"""An example has one row of hashes, however it is stored, shaped, batched or ordered, and rounding seldom hides it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gaussians import normal
from torch.utils.data import DataLoader, TensorDataset

from posterity.data.batches import Batch
from posterity.data.hashes import (
    COLUMNS,
    batch_hashes,
    by_chance,
    copies,
    data_fingerprint,
    example_hashes,
    seen,
)
from posterity.errors import BadData, NoData

X, Y = normal(50, 1, 4, 4).float(), torch.arange(50) % 10


def overlap(first, second):
    return int(seen(first, second).sum())


def rows(x):
    return batch_hashes(Batch((x,), {}, torch.zeros(len(x), dtype=torch.int64)))


def test_one_row_of_hashes_for_each_example_in_order():
    hashes = example_hashes((X, Y))
    assert hashes.dtype == torch.int64
    assert hashes.shape == (50, COLUMNS)
    assert torch.equal(hashes[:, 0], hashes[:, 0].sort().values)
    for column in range(3):
        assert len(hashes[:, column].unique()) == 50


def test_hashes_do_not_change_between_versions():
    """They stand in files: other values here would make every stored prior blind to its own data."""
    x = torch.tensor([[1.0, 2.0], [0.5, -3.0]])
    assert rows(x)[:, 0].tolist() == FIRST_COLUMN
    assert rows(x)[:, 5].tolist() == LAST_COLUMN


FIRST_COLUMN = [708213125914717024, 2685483442598852494]
LAST_COLUMN = [3857170007332945422, 3651772655314352107]


@pytest.mark.parametrize("batch_size", [1, 7, 50, 1000])
def test_batches_and_order_leave_no_trace(batch_size):
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    expected = example_hashes((X, Y))
    assert torch.equal(example_hashes((X[order], Y[order]), batch_size), expected)
    dataset = TensorDataset(X, Y)
    assert torch.equal(example_hashes(dataset, batch_size), expected)
    assert torch.equal(example_hashes(DataLoader(dataset, batch_size, shuffle=True)), expected)


def test_the_way_numbers_are_stored_and_shaped_leaves_no_trace():
    expected = example_hashes((X, Y))
    channels_last = X.to(memory_format=torch.channels_last)
    padded = torch.zeros(50, 1, 4, 9)
    padded[..., :8:2] = X
    for x in (X.double(), channels_last, padded[..., :8:2], X.clone().requires_grad_(), X.flatten(1), X.view(50, 2, 8)):
        assert torch.equal(example_hashes((x, Y)), expected)
    assert torch.equal(example_hashes([(X.numpy(), Y.numpy())]), expected)
    longer = torch.cat((X.flatten(1), torch.zeros(50, 7)), 1)
    assert torch.equal(example_hashes((longer, Y)), expected)


def test_whole_numbers_equal_the_same_floats():
    x = torch.randint(0, 256, (20, 5), generator=torch.Generator().manual_seed(0))
    expected = example_hashes((x, Y[:20]))
    for dtype in (torch.uint8, torch.int16, torch.float32, torch.float64, torch.bfloat16):
        assert torch.equal(example_hashes((x.to(dtype), Y[:20])), expected)


def sharp(n: int, kind: str, seed: int) -> torch.Tensor:
    """Data as networks meet it, n examples."""
    generator = torch.Generator().manual_seed(seed)
    match kind:
        case "normal":
            return torch.randn(n, 3, 16, 16, generator=generator)
        case "pixels":
            return torch.randint(256, (n, 1, 28, 28), generator=generator) / 255
        case "ink":
            strokes = torch.rand(n, 1, 28, 28, generator=generator) < 0.2
            return torch.rand(n, 1, 28, 28, generator=generator) * strokes
        case "wide":
            return torch.randn(n, 12, generator=generator) * 10 ** torch.linspace(-3, 6, 12)
    return torch.randn(n, 5, generator=generator)


KINDS = ["normal", "pixels", "ink", "wide", "few"]


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_does_not_hide_an_example(kind):
    x = sharp(500, kind, 0)
    known = rows(x)
    up = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    ulp = torch.where(up, x.nextafter(torch.tensor(torch.inf)), x.nextafter(torch.tensor(-torch.inf)))
    assert seen(known, rows(x.double() * (1 + 1e-9))).double().mean() > 0.995
    assert seen(known, rows(ulp)).double().mean() > 0.98
    assert seen(known, rows(x.bfloat16())).double().mean() > 0.98
    assert seen(rows(x.bfloat16()), known).double().mean() > 0.98
    if kind != "wide":  # beyond 65,504 there is no half precision
        assert seen(known, rows(x.half())).double().mean() > 0.98


@pytest.mark.parametrize("kind", KINDS)
def test_other_examples_are_not_taken_for_seen_ones(kind):
    known = rows(sharp(3000, kind, 0))
    assert overlap(known, rows(sharp(3000, kind, 1))) == 0
    if kind not in ("few", "wide"):
        assert overlap(known, rows(sharp(3000, kind, 1).bfloat16())) == 0


@pytest.mark.parametrize("size", [1, 2])
def test_in_few_dimensions_no_more_examples_match_than_chance_allows(size):
    generator = torch.Generator().manual_seed(size)
    first, second = (torch.randn(1000, size, generator=generator) for _ in range(2))
    known = rows(first)
    allowed = by_chance(known)
    assert allowed == (20 if size == 1 else 0)
    assert overlap(known, rows(second)) <= allowed
    assert overlap(known, rows(first.nextafter(torch.tensor(torch.inf)))) > max(100, allowed)


def test_a_hundredth_of_a_percent_of_noise_makes_another_example():
    noise = 1e-4 * normal(*X.shape, seed=1).float()
    assert overlap(rows(X), rows(X * (1 + noise))) == 0


def test_zero_has_no_sign():
    assert torch.equal(example_hashes((torch.zeros(1, 3), Y[:1])), example_hashes((-torch.zeros(1, 3), Y[:1])))


def test_copies_share_a_number():
    twice = torch.cat((X, X.double().flatten(1).view_as(X).float(), X[:3] + 1))
    groups = copies(rows(twice))
    assert int(groups.max()) + 1 == 53
    assert torch.equal(groups[:50], groups[50:100])


def test_targets_do_not_count_and_inputs_do():
    expected = example_hashes((X, Y))
    assert torch.equal(example_hashes((X, Y + 1)), expected)
    assert overlap(expected, example_hashes((X + 1e-3, Y))) == 0


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


def test_inputs_that_are_not_finite_are_hashed():
    x = X.clone()
    x[0, 0, 0, 0], x[1, 0, 0, 0] = torch.nan, torch.inf
    assert overlap(rows(x), rows(x)) == 50
    assert overlap(rows(X), rows(x)) == 48


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
