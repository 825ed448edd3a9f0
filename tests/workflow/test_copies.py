"""Copies among training examples: what judges by left-out examples leaves whole families of them out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.data.near_copies import families
from posterity.errors import DependentExamples

NEW = 2000


def coins(n: int, seed: int):
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=dice), torch.randint(2, (n,), generator=dice)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))


@pytest.mark.parametrize("noise", [0.0, 0.05], ids=["exact", "near"])
def test_copies_do_not_answer_for_each_other(noise):
    """Coins, five times each: left out one by one they seemed known, and sets at 90 % held the truth 67 times of 100."""
    x, y = coins(40, 1)
    x, y = x.repeat(5, 1), y.repeat(5)
    x = x + noise * torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    with pytest.warns(DependentExamples, match="200 examples are 40 families"):
        fit = pt.learn(network(), (x, y), progress=False)
    given = pt.learn(network(), (x, y), groups=torch.arange(40).repeat(5), progress=False)
    new, truth = coins(NEW, 3)
    found = fit.predict(new)
    torch.testing.assert_close(found.probs, given.predict(new).probs)
    assert float(found.sets(0.9)[torch.arange(NEW), truth].double().mean()) > 0.8
    assert float(-found.probs[torch.arange(NEW), truth].log().mean()) < 0.85


def test_heaps_rows_of_few_values_and_repeated_measurements_are_no_copies():
    dice = torch.Generator().manual_seed(0)
    corners = torch.tensor([[0.0, 0.0], [1, 1], [0, 1], [1, 0]]).repeat_interleave(25, 0)
    x = corners + 0.02 * torch.randn(corners.shape, generator=dice)
    assert families([x], torch.arange(100) // 50) is None
    assert families([torch.randint(2, (200, 3), generator=dice).float()], torch.randint(2, (200,))) is None
    doses = torch.linspace(0, 1, 30).repeat_interleave(3)[:, None] + 1e-4 * torch.randn(90, 1, generator=dice)
    y = torch.randn(90, 1, generator=dice)
    assert families([doses], y) is None
    assert families([doses, doses.cos()], y) is None
    assert families([doses, doses.cos()], doses.sin()) is not None
    assert families([coins(100, 4)[0]], coins(100, 4)[1]) is None
