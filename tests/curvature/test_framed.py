"""One pass: the frame from the first examples, the values of all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.algebra import JointEigen
from posterity.curvature import frames


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 6), nn.Tanh(), nn.Linear(6, 3)]
    return nn.Sequential(*layers).double()


def data(n: int = 60):
    x = torch.randn(n, 1, 6, 6, generator=torch.Generator().manual_seed(1)).double()
    return x, x.flatten(1)[:, :3].argmax(1)


def run(estimator, labels=None, batch_size: int = 10):
    return pt.estimate(
        network(), data(), estimator, batch_size=batch_size, generator=torch.Generator().manual_seed(3), progress=False
    )


@pytest.mark.parametrize("labels", [pt.curvature.ExactLabels(), pt.curvature.SampledLabels(2)])
@pytest.mark.parametrize("frame", [pt.KFAC(), pt.KFOC()], ids=str)
def test_the_trace_is_the_fishers_and_values_are_its_diagonal_in_the_frame(labels, frame):
    found, dense = run(pt.curvature.OwnFrame(labels, frame, examples=20)), run(pt.curvature.Dense(labels))
    for name, matrix in found.blocks.items():
        whole = dense[name].dense()
        assert isinstance(matrix, JointEigen)
        assert float(matrix.trace()) == pytest.approx(float(whole.trace()), rel=1e-9)
        q = torch.kron(matrix.left.matrix, matrix.right.matrix)
        torch.testing.assert_close((q.T @ whole @ q).diagonal(), matrix.values.flatten(), rtol=1e-8, atol=1e-10)


def test_with_all_examples_in_the_frame_it_is_ekfac():
    found, ekfac = (
        run(pt.curvature.OwnFrame(pt.curvature.ExactLabels(), pt.KFAC(), examples=1000)),
        run(pt.EKFAC(pt.curvature.ExactLabels())),
    )
    for name in found.blocks:
        torch.testing.assert_close(found[name].dense(), ekfac[name].dense(), rtol=0, atol=1e-9)


def test_values_bring_a_pair_closer_to_the_fisher():
    labels = pt.curvature.ExactLabels()
    dense, pair, found = (
        run(pt.curvature.Dense(labels)),
        run(pt.KFOC(labels)),
        run(pt.curvature.OwnFrame(labels, pt.KFOC(), examples=1000)),
    )
    for name in dense.blocks:
        whole = dense[name].dense()
        assert (found[name].dense() - whole).norm() <= (pair[name].dense() - whole).norm() * (1 + 1e-9)


def test_a_block_that_would_keep_too_much_settles_sooner(monkeypatch):
    monkeypatch.setattr(frames, "KEPT", 1)
    found, dense = (
        run(pt.curvature.OwnFrame(pt.curvature.ExactLabels(), examples=1000)),
        run(pt.curvature.Dense(pt.curvature.ExactLabels())),
    )
    for name in found.blocks:
        assert float(found[name].trace()) == pytest.approx(float(dense[name].trace()), rel=1e-9)
    with pytest.raises(ValueError, match="at least 1"):
        pt.curvature.OwnFrame(examples=0)


def test_it_can_be_handed_down(tmp_path):
    model = network()
    found = pt.update(model, run(pt.curvature.OwnFrame()), pt.isotropic(model))
    found.save(tmp_path / "a.safetensors")
    assert pt.load(tmp_path / "a.safetensors").card.estimator.startswith("OwnFrame(")
