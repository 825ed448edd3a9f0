"""Rows turned into a frame give the Jacobian that turned gradients give."""

import copy
import sys

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.blocks import find_blocks, read_blocks
from posterity.data.batches import input_batches
from posterity.kernel.jacobian import BlockFrame, jacobian
from posterity.predictive import linearised


@pytest.fixture
def fitted():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 2, stride=2, groups=1), nn.Flatten(), nn.Linear(12, 3)
    ).double()
    x, y = torch.randn(6, 2, 4, 4).double(), torch.arange(6) % 3
    curvature = pt.estimate(model, (x, y), pt.KFAC(), progress=False)
    return model, pt.update(model, curvature, pt.isotropic(model, 1.0, mean="model")), x


def test_jacobians_are_the_same_by_rows_and_by_gradients(fitted, monkeypatch):
    model, prior, x = fitted
    blocks = find_blocks(model)
    frames = {name: BlockFrame.of(matrix) for name, matrix in prior.precision.items()}
    found = []
    for by_rows in (True, False):
        module = sys.modules["posterity.kernel.jacobian"]
        monkeypatch.setattr(module, "rows_are_cheaper", lambda *a, by_rows=by_rows: by_rows)
        found.append(jacobian(model, blocks, read_blocks(model, blocks), frames, input_batches(x, 4, x.device)).blocks)
    for name in ("0", "2"):
        torch.testing.assert_close(found[0][name].g, found[1][name].g, rtol=1e-10, atol=1e-12)
        assert float(found[0][name].g.abs().max()) > 1e-3


def test_gradients_of_a_network_in_float32_are_those_in_float64_up_to_its_own_rounding(fitted, monkeypatch):
    model, prior, x = fitted
    frames = {name: BlockFrame.of(matrix) for name, matrix in prior.precision.items()}
    monkeypatch.setattr(sys.modules["posterity.kernel.jacobian"], "rows_are_cheaper", lambda *a: True)
    exact, rounded = (
        jacobian(net, blocks, read_blocks(net, blocks), frames, input_batches(x.to(dtype), 4, x.device)).blocks
        for dtype in (torch.float64, torch.float32)
        for net in [copy.deepcopy(model).to(dtype)]
        for blocks in [find_blocks(net)]
    )
    for name in ("0", "2"):
        assert rounded[name].g.dtype == torch.float64
        error = (exact[name].g - rounded[name].g).norm() / exact[name].g.norm()
        assert 1e-9 < float(error) < 1e-6


def test_linearised_covariances_are_the_same_by_rows_and_by_gradients(fitted, monkeypatch):
    model, prior, x = fitted
    found = []
    for by_rows in (True, False):
        monkeypatch.setattr(linearised, "rows_are_cheaper", lambda *a, by_rows=by_rows: by_rows)
        found.append(pt.predict(model, prior, x, generator=torch.Generator().manual_seed(0)).probs)
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)
