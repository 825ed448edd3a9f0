"""Chains of learning, with every estimator: what is handed down can be handed down again."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

import posterity as pt
from posterity.algebra import FlooredMatrix
from posterity.curvature.kfoc import _weighted


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def task(seed: int, n: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    return x, (x @ torch.randn(4, 3, generator=generator)).argmax(-1)


@pytest.mark.parametrize("estimator", [pt.KFAC(), pt.KFOC(), pt.EKFAC(), pt.Diagonal(), pt.curvature.Dense()], ids=str)
def test_every_estimator_chains_two_learnings_and_keeps_the_floor(estimator, tmp_path):
    model, prior = network(), None
    for number in range(3):
        fit = pt.learn(
            model,
            task(number),
            prior,
            head="keep",
            scales="bayes",
            estimator=estimator,
            training={"epochs": 2},
            progress=False,
        )
        prior = fit.posterior
        for name, matrix in prior.precision.items():
            assert isinstance(matrix, FlooredMatrix)
            assert matrix.floor == 0.4  # of forty examples
            assert float(matrix.logdet()) >= float(fit.prior.precision[name].logdet()) - 1e-9
    prior.save(tmp_path / "chain.safetensors")
    again = pt.load(tmp_path / "chain.safetensors")
    assert again.fingerprint() == prior.fingerprint()
    assert again.adjusted(share=0.5).precision["0"].share == 0.5
    assert again.provenance.count == 120


def test_weights_over_twenty_orders_of_magnitude_have_roots():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(5, 30, 30, generator=generator)).Q
    values = torch.logspace(1, -24, 30).expand(5, 30)
    weights = (vectors * values[:, None, :]) @ vectors.mT
    x = torch.randn(5, 30, 7, generator=generator)
    rows = _weighted(x, weights)
    expected = (x.mT @ weights @ x).sum(0)
    torch.testing.assert_close(rows.mT @ rows, expected, rtol=1e-3, atol=1e-3)


def test_evidence_that_has_no_maximum_says_so(caplog):
    """Weights exactly at the prior's mean: the stronger the prior, the better."""
    model = network()
    prior = pt.isotropic(model, 1.0, mean="model")
    curvature = pt.estimate(model, task(0), pt.KFAC(), progress=False)
    with caplog.at_level(logging.WARNING, "posterity"):
        pt.laplace.tune_strength(model, curvature, prior)
    assert any("stopped at its border" in message for message in caplog.messages)


def test_options_nobody_knows_are_refused_by_a_split_prior():
    refined = pt.split_prior(network(), task(0, 60), training={"epochs": 1}, progress=False)
    with pytest.raises(TypeError, match="colour"):
        refined.certify(colour="blue", progress=False)
