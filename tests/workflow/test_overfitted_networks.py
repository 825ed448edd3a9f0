"""A network that has learned its training data by heart: what is said of its posterior, and what validation data mends."""

from __future__ import annotations

import logging
from importlib import import_module

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.kernel import LeftOut

from_trained = import_module("posterity.workflow.from_trained")


def examples(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes with one label in five wrong."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    wrong = torch.rand(n, generator=generator) < 0.2
    return x, ((x[:, 0] > 0) ^ wrong).long()


@pytest.fixture(scope="module")
def by_heart() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    x, y = examples(100, 0)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(300):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    assert bool((model(x).argmax(1) == y).all())
    return model.eval()


def test_validation_data_mends_it_and_without_it_a_warning_says_so(by_heart, caplog):
    x, y = examples(500, 1)
    own = by_heart(x).detach().softmax(1)
    with caplog.at_level(logging.WARNING, logger="posterity"):
        alone = pt.posterior(by_heart, examples(100, 0), progress=False)
    assert "validation=(x, y)" in caplog.text
    assert torch.allclose(alone.predict(x).probs, own, atol=1e-4)
    mended = pt.posterior(by_heart, examples(100, 0), validation=examples(100, 2), progress=False)
    assert pt.score(own, y).nll > 2
    assert pt.score(mended.predict(x).probs, y).nll < 0.72  # guessing is ln 2 = 0.69


@pytest.mark.parametrize(("wide", "share"), [(3.9, 1.0), (8.0, 0.1), (400.0, 0.003), (1e9, 0.0)])
def test_a_posterior_that_is_too_wide_for_its_own_examples_is_narrowed(wide, share):
    # At equal logits of two classes H has the eigenvalues 0 and 1/2 along (1, −1), so HS < 1 is a width below 2 · 2.
    seen = LeftOut(torch.zeros(5, 2, dtype=torch.float64), wide / 2 * torch.eye(2, dtype=torch.float64).expand(5, 2, 2))
    assert from_trained._believable(seen, pt.Categorical()) == share
