"""A Gaussian in turned frames is a Gaussian like any other: beside its dense form it predicts, certifies and is kept alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.algebra import DenseMatrix, FlooredMatrix, RotatedMatrix

QUIET = {"progress": False}
WIDE = 12


def some_task(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, WIDE) @ torch.randn(WIDE, WIDE), torch.randint(8, (n,))


@pytest.fixture(scope="module")
def handed_down() -> tuple[nn.Module, pt.Gaussian]:
    """A network and what two tasks left of it, in turned frames."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDE, 16), nn.Tanh(), nn.Linear(16, 8))
    prior = pt.isotropic(model, 0.1)
    for _ in range(2):
        data = some_task(60)
        pt.train(model, data, epochs=20, **QUIET)
        prior = pt.update(model, pt.estimate(model, data, pt.KFAC(), **QUIET), prior, join="turned")
    assert all(
        isinstance(m, FlooredMatrix) and isinstance(m.curvature, RotatedMatrix) for m in prior.precision.values()
    )
    return model, prior


def dense(gaussian: pt.Gaussian) -> pt.Gaussian:
    """The same with every precision written out."""
    precision = {}
    for name, matrix in gaussian.precision.items():
        assert isinstance(matrix, FlooredMatrix)
        written = DenseMatrix(matrix.curvature.dense().double(), matrix.shape)
        precision[name] = FlooredMatrix(written, matrix.share, matrix.floor)
    return replace(gaussian, precision=precision)


def test_few_examples_after_it_are_predicted_as_after_its_dense_form(handed_down):
    model, prior = handed_down
    x, y = torch.randn(24, WIDE), torch.arange(24) % 8
    new = torch.randn(20, WIDE)
    ours, theirs = (
        pt.adapt(model, (x, y), p, head="keep", generator=torch.Generator().manual_seed(0), **QUIET).predict(new)
        for p in (prior, dense(prior))
    )
    torch.testing.assert_close(ours.probs, theirs.probs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.unknown, theirs.unknown, rtol=1e-4, atol=1e-5)


def test_draws_and_linearised_predictions_are_those_of_its_dense_form(handed_down):
    model, prior = handed_down
    prior.write_to(model)
    new = torch.randn(20, WIDE)
    ours, theirs = (pt.predict(model, p, new).probs for p in (prior, dense(prior)))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert float(prior.kl(dense(prior))) == pytest.approx(0, abs=1e-6)
    assert float(dense(prior).kl(prior)) == pytest.approx(0, abs=1e-6)


def test_a_file_gives_it_back_to_the_last_bit(handed_down, tmp_path):
    _, prior = handed_down
    prior.save(tmp_path / "prior.safetensors")
    again = pt.load(tmp_path / "prior.safetensors")
    for name in prior.blocks:
        one, two = (p.precision[name].sample(3, generator=torch.Generator().manual_seed(1)) for p in (prior, again))
        assert torch.equal(one, two)
    assert again.card.compression == prior.card.compression


def test_it_is_certified_with_the_divergence_of_its_dense_form(handed_down):
    model, prior = handed_down
    x, y = some_task(200)
    pt.train(model, (x, y), prior, epochs=5, **QUIET)
    curvature = pt.estimate(model, (x, y), pt.KFAC(), **QUIET)
    posterior = pt.update(model, curvature, prior, join="turned")
    given = prior.with_provenance(posterior.provenance.none())
    found = [pt.certify(model, posterior, p, (x, y), **QUIET).kl for p in (given, dense(given))]
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_each_update_is_closer_to_the_exact_sum_than_in_a_plain_frame():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDE, 16), nn.Tanh(), nn.Linear(16, 8))
    curvatures = []
    for _ in range(3):
        data = some_task(40)
        curvatures.append(pt.estimate(model, data, pt.KFAC(), **QUIET))
    exact = {n: m.dense().double() for n, m in pt.isotropic(model, 0.1).precision.items()}
    for curvature in curvatures:
        exact = {name: matrix + curvature[name].dense().double() for name, matrix in exact.items()}
    means = {name: torch.zeros(m.shape) for name, m in pt.isotropic(model, 0.1).precision.items()}
    whole = pt.Gaussian(means, {n: DenseMatrix(m, tuple(means[n].shape)) for n, m in exact.items()})
    lost = {}
    for join in ("frame", "turned"):
        found = replace(pt.isotropic(model, 0.1), mean=means)
        for curvature in curvatures:
            found = pt.update(means, curvature, found, join=join)
        lost[join] = float(found.kl(whole))
    assert 0 <= lost["turned"] < lost["frame"]


def test_a_word_that_is_no_way_to_join_is_refused(handed_down):
    model, prior = handed_down
    curvature = pt.estimate(model, some_task(4), pt.KFAC(), **QUIET)
    with pytest.raises(ValueError, match="'turned'"):
        pt.update(model, curvature, prior, join="exact")
