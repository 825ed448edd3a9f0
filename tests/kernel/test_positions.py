"""Large blocks at several positions: the same kernel as from gradients that are written out."""

import sys

import pytest
import torch
from small import Problem, some_inputs

import posterity as pt
from posterity.gaussian import Gaussian
from posterity.kernel import positions
from posterity.kernel.jacobian import Gradients
from posterity.kernel.positions import Positions
from posterity.workflow.handed_down import COMBINED, MOST_ROWS, _directions


@pytest.fixture
def pair():
    draw = torch.Generator().manual_seed(0)

    def made(n):
        a = torch.randn(n, 3, 5, generator=draw).double()
        s = torch.randn(n, 2, 3, 4, generator=draw).double()
        return Positions(a, s), Gradients(torch.einsum("ncto,nti->ncoi", s, a))

    return made(6), made(3)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("piece", [1, 1 << 24])
def test_kernels_are_those_of_gradients_written_out(pair, weighted, piece, monkeypatch):
    monkeypatch.setattr(positions, "PIECE", piece)
    (one, plain_one), (two, plain_two) = pair
    weights = torch.rand(4, 5, generator=torch.Generator().manual_seed(1)).double() if weighted else None
    torch.testing.assert_close(one.gram(two, weights), plain_one.gram(plain_two, weights))
    torch.testing.assert_close(one.shared_gram(two, weights), plain_one.shared_gram(plain_two, weights))
    torch.testing.assert_close(one.shared_gram(one, weights), plain_one.shared_gram(plain_one, weights))
    torch.testing.assert_close(one.norms(weights), plain_one.norms(weights))
    torch.testing.assert_close(one.shared_norms(weights), plain_one.shared_norms(weights))


def test_sums_and_directions_are_those_of_gradients_written_out(pair):
    (one, plain), _ = pair
    direction = torch.randn(4, 5, generator=torch.Generator().manual_seed(1)).double()
    coefficients = torch.randn(6, 2, generator=torch.Generator().manual_seed(2)).double()
    torch.testing.assert_close(one.along(direction), plain.along(direction))
    torch.testing.assert_close(one.combined(coefficients), plain.combined(coefficients))


@pytest.mark.parametrize("shared", [True, False])
def test_a_posterior_is_the_same_where_a_block_counts_as_large(shared, monkeypatch):
    found = []
    for large in (True, False):
        module = sys.modules["posterity.kernel.jacobian"]
        monkeypatch.setattr(module, "is_large", lambda *sides, large=large: large)
        problem = Problem("convolutional", 3, 5, pt.Categorical(), shared=shared)
        assert isinstance(problem.linearised.train.blocks["conv"], Positions if large else Gradients)
        new = problem.jacobian(some_inputs("convolutional", 4).double())
        found.append(problem.linearised.posterior(None).moments(new))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_few_combinations_of_a_large_head_have_its_second_moment_on_average():
    rows = torch.randn(4 * MOST_ROWS, 3, generator=torch.Generator().manual_seed(0)).double()
    prior = Gaussian({"head": rows}, {"head": pt.algebra.scaled_identity(1.0, tuple(rows.shape))})
    few = _directions(prior, "head", torch.zeros(10, 3).double())
    assert few.shape == (COMBINED, 3)
    # The expected square of each is the mean square of the head; twelve squares are within a factor of two and a half of it.
    ratio = float(few.square().mean() / rows.square().mean())
    assert 0.4 < ratio < 2.5
    kept = _directions(
        Gaussian({"head": rows[:9]}, {"head": pt.algebra.scaled_identity(1.0, (9, 3))}), "head", few[:, :3]
    )
    assert torch.equal(kept, rows[:9])
