"""Prior means from names of classes."""

import math

import pytest
import torch
from test_head_classes import clusters, in_folds
from torch.nn.functional import cross_entropy

from posterity.errors import BadData, BadTargets, SizeMismatch
from posterity.heads import HeadRecipe, Words, classify, words

NAMES = ("ant", "bee", "cat", "dog", "emu")


def named(each=4, noise=3.0, seed=0):
    """Clusters whose centres the names know up to some noise."""
    x, y = clusters(classes=5, each=each + 40, d=60, seed=seed, noise=noise)
    centres = torch.stack([x[y == c].mean(0) for c in range(5)])
    rows = centres + 0.5 * torch.randn(5, 60, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, y, Words.of(NAMES, rows)


def nll(fit, x, y):
    return float(cross_entropy(fit.head.log_probs(x), y))


@pytest.mark.parametrize("shots", [1, 2, 5])
def test_names_that_mean_something_lower_the_nll(shots):
    x, y, words = named()
    n = 5 * shots
    folds = in_folds(y[:n], min(shots, 5)) if shots > 1 else torch.full((n,), -1)
    plain, with_names = (classify(x[:n], y[:n], folds, words=w) for w in (None, words))
    assert nll(with_names, x[50:], y[50:]) < 0.9 * nll(plain, x[50:], y[50:])


@pytest.mark.parametrize("shots", [1, 2, 5])
def test_names_of_other_classes_cost_next_to_nothing(shots):
    x, y, words = named()
    wrong = Words(words.names, words.directions.roll(1, 0))
    n = 5 * shots
    folds = in_folds(y[:n], min(shots, 5)) if shots > 1 else torch.full((n,), -1)
    plain, with_names = (classify(x[:n], y[:n], folds, words=w) for w in (None, wrong))
    assert abs(nll(with_names, x[50:], y[50:]) - nll(plain, x[50:], y[50:])) < 0.02


def test_a_class_with_a_name_and_no_label_is_found_by_its_name():
    x, y, words = named(noise=1.0)
    known = (y[:50] != 4).nonzero().flatten()[:16]
    fit = classify(x[known], y[known], in_folds(y[known], 4), words=words)
    rest = slice(50, None)
    right = (fit.head.log_probs(x[rest]).argmax(1) == y[rest])[y[rest] == 4]
    assert float(right.double().mean()) > 0.6
    assert all(candidate.size > 0 for candidate in fit.head.weights())


def test_sizes_go_on_where_the_largest_has_most_of_the_weight():
    x, y, words = named()
    recipe = HeadRecipe(sizes=(0.5, 1.0), spread=0.05, wide=1e-9)
    fit = classify(x[:50], y[:50], in_folds(y[:50], 5), words=words, recipe=recipe)
    assert max(candidate.size for candidate in fit.head.weights()) > 1.0


def test_directions_have_length_one_and_do_not_depend_on_a_common_shift_of_unit_vectors():
    rows = torch.randn(5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    words = Words.of(NAMES, rows)
    torch.testing.assert_close(words.directions.norm(dim=1), torch.ones(5).double())
    assert float(words.directions.mean(0).norm()) < 0.3


def test_an_encoder_is_any_callable_from_strings_to_rows():
    table = {name: [float(ord(name[0])), float(len(name)), float(i)] for i, name in enumerate(NAMES)}
    made = words(lambda names: [table[name] for name in names], NAMES)
    assert made.directions.shape == (5, 3)


@pytest.mark.parametrize(
    ("encode", "error", "says"),
    [
        (lambda names: (torch.zeros(5, 3), "more"), BadData, "tuple"),
        (lambda names: torch.zeros(4, 3), BadData, r"\(4, 3\) for 5 names"),
        (lambda names: torch.full((5, 3), math.nan), BadData, "finite"),
    ],
)
def test_what_an_encoder_may_not_return(encode, error, says):
    with pytest.raises(error, match=says):
        words(encode, NAMES)


def test_a_name_that_comes_twice_is_refused():
    with pytest.raises(BadTargets, match='"ant" comes twice'):
        words(lambda names: torch.zeros(2, 3), ["ant", "ant"])


def test_names_of_another_width_are_refused():
    x, y, words = named()
    with pytest.raises(SizeMismatch, match="embedded in 60 numbers, and the features have 59 columns"):
        classify(x[:25, 1:], y[:25], in_folds(y[:25], 5), words=words)
