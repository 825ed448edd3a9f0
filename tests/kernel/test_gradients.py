"""Kernels of rows are those of gradients written out, whole or in pieces, and strengths of one ratio have theirs in common."""

from __future__ import annotations

import pytest
import torch
from small import Problem, some_inputs

import posterity as pt
from posterity.kernel import Strength, gradients
from posterity.kernel.gradients import Gradients, Rows


def rows(n: int, outputs: int = 3) -> Rows:
    generator = torch.Generator().manual_seed(n)
    a = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    return Rows(a, torch.randn(n, outputs, 4, generator=generator, dtype=torch.float64))


def written_out(of: Rows) -> Gradients:
    return Gradients(torch.einsum("nci,nj->ncij", of.s, of.a))


WEIGHTS = [None, torch.rand(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)]


@pytest.mark.parametrize("room", [1, 100, 1 << 19])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_kernels_of_rows_are_those_of_gradients_written_out(weights, room, monkeypatch):
    monkeypatch.setattr(gradients, "PIECE", room)
    one, two = rows(20), rows(7)
    torch.testing.assert_close(one.gram(two, weights), written_out(one).gram(written_out(two), weights))
    torch.testing.assert_close(one.shared_gram(two, weights), written_out(one).shared_gram(written_out(two), weights))


@pytest.mark.parametrize("count", [1, 7, 16, 67])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("form", [lambda x: x, written_out])
def test_the_kernel_of_examples_with_themselves_is_that_with_their_copies(form, weights, count):
    one, copy = form(rows(count)), form(rows(count))
    torch.testing.assert_close(one.gram(one, weights), one.gram(copy, weights))


@pytest.mark.parametrize("shared", [False, True])
def test_posteriors_that_keep_their_kernels_for_each_other_say_what_they_say_alone(shared):
    problem = Problem("convolutional", 3, 6, pt.Categorical(), shared=shared)
    new, kept = problem.jacobian(some_inputs("convolutional", 4).double()), {}
    for strength in (Strength(0.01, 0.1), Strength(0.1, 1.0), Strength(0.01, 1.0, 3.0), Strength(0.0, 2.0)):
        posterior = problem.linearised.posterior(strength)
        for alone, together in zip(posterior.moments(new), posterior.moments(new, kept), strict=True):
            torch.testing.assert_close(alone, together, rtol=1e-12, atol=1e-12)
    assert len(kept) == 6  # three ratios, each with the training examples and with itself
