"""Weights of candidates and one temperature, from what was left out."""

from __future__ import annotations

import pytest
import torch

import posterity as pt
from posterity.kernel.stacking import stacked, temperature


def test_without_examples_weights_are_what_is_believed():
    assert stacked(torch.zeros(2, 0).double(), torch.tensor([3.0, 1.0]).double()).tolist() == [0.75, 0.25]


def test_a_candidate_that_is_always_better_has_all_but_what_is_believed_of_the_other():
    worse = torch.full((80,), -2.0).double()
    found = stacked(torch.stack([worse, worse + 1.9]), torch.ones(2).double())
    # 80 examples for the second, of which a share is put down to the first, and one for each by belief.
    assert 0.94 < float(found[1]) < 81 / 82
    assert float(found[0]) > 1 / 82


def test_candidates_that_are_right_where_the_other_is_wrong_are_both_wanted():
    split = torch.where(torch.arange(80) % 2 == 0, 0.9, 0.1).double()
    found = stacked(torch.stack([split, 1 - split]).log(), torch.ones(2).double())
    assert found.tolist() == pytest.approx([0.5, 0.5], abs=1e-4)


def test_weights_are_at_the_optimum():
    scores = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)).double()
    counts = torch.tensor([0.5, 1.0, 2.0]).double()
    found = stacked(scores, counts).requires_grad_()
    (torch.logsumexp(scores + found.log()[:, None], 0).sum() + (counts * found.log()).sum()).backward()
    assert found.grad is not None
    # Equal slopes on the simplex.
    assert float(found.grad.std() / found.grad.mean()) < 1e-3


def test_examples_of_one_group_count_as_one():
    worse = torch.full((40,), -1.0).double()
    scores, counts = torch.stack([worse, worse + 0.5]), torch.ones(2).double()
    once = stacked(scores[:, :4], counts)
    torch.testing.assert_close(stacked(scores, counts, torch.full((40,), 0.1).double()), once)


def test_a_temperature_is_found_again_and_few_examples_leave_it_near_one():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4000, 5, generator=generator).double()
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    assert temperature(logits, pt.Categorical(), labels) == pytest.approx(2.0, rel=0.1)
    sharp = temperature(logits / 4, pt.Categorical(), labels)
    assert sharp == pytest.approx(0.5, rel=0.1)
    few = temperature(logits[:3] / 4, pt.Categorical(), logits[:3].argmax(1))
    assert sharp < few < 1
