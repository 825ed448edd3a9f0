"""Large blocks at several positions: the same kernel as from gradients that are written out."""

import sys
from dataclasses import replace

import pytest
import torch
from small import Problem, some_inputs

import posterity as pt
from posterity.gaussian import Gaussian
from posterity.kernel import Jacobian, choose, gradients
from posterity.kernel.choose import FAR, FAR_FLOORS, FAR_HEADS, TYPICAL, UNITS, unit
from posterity.kernel.gradients import Gradients, Positions
from posterity.kernel.kernels import SHARES
from posterity.workflow.ways.around_prior import COMBINED, MOST_ROWS, _directions


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
    monkeypatch.setattr(gradients, "WRITTEN", piece)
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
    rows = torch.randn(4 * MOST_ROWS, 50, generator=torch.Generator().manual_seed(0)).double()
    prior = Gaussian({"head": rows}, {"head": pt.algebra.scaled_identity(1.0, tuple(rows.shape))})
    few = _directions(prior, "head", torch.zeros(10, 50).double())
    assert few.shape == (COMBINED, 50)
    # The expected square of each entry is the mean square of the head; a hundred of them are within half of it.
    ratio = float(few.square().mean() / rows.square().mean())
    assert 0.5 < ratio < 1.5
    kept = _directions(Gaussian({"head": rows[:9]}, {"head": pt.algebra.scaled_identity(1.0, (9, 50))}), "head", few)
    assert torch.equal(kept, rows[:9])


@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4])
def test_grids_of_a_new_head_move_to_where_outputs_are(factor):
    """Features a hundred times as large ask for a head ten thousand times as firm."""
    problem = Problem(
        "dense", 3, 30, pt.Categorical(), shared=True
    )  # so many that a belief about strengths counts little
    blocks = dict(problem.linearised.train.blocks)
    rows = blocks[problem.head]
    blocks[problem.head] = type(rows)(rows.a * factor**0.5, rows.s)
    moved = replace(problem.linearised, train=Jacobian(problem.linearised.train.outputs, blocks))
    size = float(blocks[problem.head].a.square().sum(-1).mean())
    found = unit(moved, 0.0, head=True)
    assert found == 1.0 if FAR[0] <= size <= FAR[1] else 1 <= size / found / TYPICAL <= 10
    other = choose(moved)
    if found != 1:
        wide = (len(SHARES) * len(FAR_FLOORS) + 1) * len(FAR_HEADS)
        assert other.strengths == wide * len(UNITS) ** 2
        nll = [min(m.nll for m in c.members) for c in (choose(problem.linearised), other)]
        assert abs(nll[0] - nll[1]) < 0.1
    free = choose(problem.linearised, still=False).members
    assert all(m.posterior.strength.floor < float("inf") for m in free)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_no_search_on_moved_grids_runs_to_their_edge(factor):
    """Examples that are all separated ask for weaker priors without end: the belief about strengths ends it."""
    problem = Problem("dense", 3, 12, pt.Categorical(), shared=True)
    apart = 10 * torch.eye(3).double()[problem.linearised.targets]
    rows = problem.linearised.train.blocks[problem.head]
    blocks = dict(problem.linearised.train.blocks)
    blocks[problem.head] = type(rows)(apart * factor**0.5, rows.s)
    told_apart = replace(problem.linearised, train=Jacobian(problem.linearised.train.outputs, blocks))
    ends = [k * unit(told_apart, 0.0, head=True) for k in (FAR_HEADS[0], FAR_HEADS[-1])]
    middle = 100 * factor / TYPICAL
    for member in choose(told_apart).members:
        assert 10 * ends[0] < member.posterior.strength.head < ends[1] / 10
        assert 1e-4 < member.posterior.strength.head / middle < 1
