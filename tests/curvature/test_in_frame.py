"""Values in eigenvectors that are given, and the posterior that stays in them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.algebra import FlooredMatrix, JointEigen, eigenframe
from posterity.curvature.frames import BY_HAND


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 6), nn.Tanh(), nn.Linear(6, 3)]
    return nn.Sequential(*layers).double()


def data(n: int = 40, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, 1, 6, 6, generator=torch.Generator().manual_seed(seed)).double()
    return x, x.flatten(1)[:, :3].argmax(1)


def run(estimator: pt.curvature.Estimator, seed: int = 1) -> pt.curvature.Curvature:
    dice = torch.Generator().manual_seed(3)
    return pt.estimate(network(), data(seed=seed), estimator, batch_size=10, generator=dice, progress=False)


def prior(floor: float = 0.5) -> pt.Gaussian:
    return pt.prior(network(), data(seed=2)[0], floor=floor, estimator=pt.KFAC(), progress=False)


def test_values_are_the_fishers_diagonal_in_the_frame_given() -> None:
    given = prior().precision
    found, dense = (
        run(pt.curvature.GivenFrame(pt.curvature.ExactLabels(), given)),
        run(pt.curvature.Dense(pt.curvature.ExactLabels())),
    )
    for name, matrix in found.blocks.items():
        frame = eigenframe(given[name])
        assert isinstance(matrix, JointEigen)
        assert frame is not None
        assert matrix.shares_bases(frame)
        q = torch.kron(frame.left.matrix, frame.right.matrix)
        torch.testing.assert_close(
            (q.T @ dense[name].dense() @ q).diagonal(), matrix.values.flatten(), rtol=1e-8, atol=1e-10
        )
        assert float(matrix.trace()) == pytest.approx(float(dense[name].trace()), rel=1e-9)


def test_blocks_without_a_frame_are_left_to_another_estimator() -> None:
    given = {"0": prior().precision["0"]}
    found, others = (
        run(pt.curvature.GivenFrame(pt.curvature.ExactLabels(), given, pt.Diagonal())),
        run(pt.Diagonal(pt.curvature.ExactLabels())),
    )
    assert isinstance(found["0"], JointEigen)
    for name in ("3", "5"):
        torch.testing.assert_close(found[name].values, others[name].values)  # type: ignore[attr-defined]


def test_a_frame_of_another_shape_is_not_taken() -> None:
    found = run(pt.curvature.GivenFrame(pt.curvature.ExactLabels(), {"3": prior().precision["5"]}, pt.Diagonal()))
    assert not isinstance(found["3"], JointEigen)


def test_the_posterior_stays_in_the_priors_frame_exactly_and_is_nowhere_wider() -> None:
    before = prior()
    posterior = pt.update(network(), run(pt.curvature.GivenFrame.of(before, pt.curvature.ExactLabels())), before)
    for name, matrix in posterior.precision.items():
        old = before.precision[name]
        assert isinstance(matrix, FlooredMatrix)
        assert isinstance(old, FlooredMatrix)
        assert matrix.floor == old.floor
        frame, known = eigenframe(matrix), eigenframe(old)
        assert frame is not None
        assert known is not None
        assert frame.shares_bases(known)  # the tensors themselves: nothing is held twice
        assert bool((frame.values >= known.values - 1e-12).all())
    assert posterior.card.compression == before.card.compression


def test_traces_in_a_shared_frame_agree_with_dense_ones() -> None:
    before = prior()
    curvature = run(pt.curvature.GivenFrame.of(before, pt.curvature.ExactLabels()))
    posterior = pt.update(network(), curvature, before)
    for name, matrix in posterior.precision.items():
        dense = torch.linalg.solve(matrix.dense(), curvature[name].dense()).trace()
        torch.testing.assert_close(matrix.trace_of(curvature[name]), dense, rtol=1e-8, atol=1e-10)


def test_curvature_has_seen_what_its_eigenvectors_have_seen() -> None:
    """A prior whose eigenvectors come from the certifying examples must not be taken for one that has not seen them."""
    secret, others = data(seed=5), data(seed=6)[0]
    model = network()
    spy = pt.prior(model, secret[0], floor=1.0, estimator=pt.KFAC(), progress=False)
    told = pt.prior(model, others, floor=1.0, estimator=pt.curvature.GivenFrame.of(spy), progress=False)
    by_hand = pt.prior(
        model, others, floor=1.0, estimator=pt.curvature.GivenFrame(frames=spy.precision), progress=False
    )
    plain = pt.prior(model, others, floor=1.0, estimator=pt.KFAC(), progress=False)
    assert told.provenance.count == plain.provenance.count + len(secret[0])
    assert BY_HAND in str(by_hand.provenance.gaps)
    nested = pt.curvature.GivenFrame.of(plain, rest=pt.curvature.GivenFrame.of(spy))
    assert nested.seen.count == plain.provenance.joined(spy.provenance).count
