"""All steps in one, and again and again."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posterity as pt
from posterity.laplace.run import split
from posterity.predictive.exact import ExactLinear

QUICK = {"epochs": 3, "lr": 1e-2}


def network(classes: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, classes))


def task(seed: int, n: int = 60, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    return x, (x @ torch.randn(4, classes, generator=generator)).argmax(-1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_fit_holds_what_learning_left_behind():
    model = network()
    fit = pt.learn(model, task(0), training=QUICK, generator=seeded(), progress=False)
    assert fit.model is model
    assert len(fit.history.epochs) == 3
    assert fit.curvature.count == 60  # few examples need none held out
    assert fit.posterior.card.count == 60
    assert fit.curvature.estimator == pt.EKFAC()
    assert isinstance(fit.predictor, ExactLinear)
    assert not any(m.any() for m in fit.prior.mean.values())
    assert float(fit.prior.precision["0"].trace()) == pytest.approx(0.6 * 25)  # of sixty examples
    assert fit.scales == pt.Scales()
    by_hand = pt.update(model, fit.curvature, fit.prior, fit.scales)
    for name, matrix in fit.posterior.precision.items():
        assert torch.equal(matrix.dense(), by_hand.precision[name].dense())
        assert torch.equal(fit.posterior.mean[name], by_hand.mean[name])


def test_choices_are_passed_on():
    prior, scales = pt.isotropic(network(), 3.0, mean="model"), pt.Scales(2.0, 0.5, 0.1)
    fit = pt.learn(
        network(),
        task(0),
        prior,
        estimator=pt.Diagonal(),
        scales=scales,
        validation=None,
        training=QUICK,
        progress=False,
    )
    assert fit.curvature.count == 60
    assert fit.curvature.estimator == pt.Diagonal()
    assert fit.scales is scales
    expected = (0.5 * fit.curvature["0"].values + 6.0) / 0.1
    torch.testing.assert_close(fit.posterior.precision["0"].total.values, expected.double())


def test_the_posterior_becomes_the_prior_over_three_tasks():
    model, prior, seen = network(), None, 0
    for number in range(3):
        fit = pt.learn(
            model, task(number), prior, head="keep", training=QUICK, generator=seeded(number), progress=False
        )
        seen += 60
        assert fit.posterior.card.count == seen
        if prior is not None:
            # Where training starts from and is pulled to: what was known before.
            for name in prior.blocks:
                assert torch.equal(fit.prior.mean[name], prior.mean[name])
        prior = fit.posterior
    assert set(prior.card.compression) == {"0", "2"}
    assert all(0 <= e < 0.5 for e in prior.card.compression.values())


def test_the_long_form_is_the_same_chain():
    model = network()
    prior = pt.isotropic(model, precision=1e-4)
    for number in range(3):
        pt.train(model, task(number), prior, epochs=2, progress=False)
        curvature = pt.estimate(model, task(number), pt.KFOC(), progress=False)
        posterior = pt.update(model, curvature, prior)
        prior = posterior
    assert prior.card.count == 180
    assert torch.isfinite(prior.logdet())


@pytest.mark.parametrize("form", ["tensors", "dataset", "loader"])
def test_what_is_held_out_in_training_is_held_out_of_the_curvature(form):
    x, y = task(0)
    data = {"tensors": (x, y), "dataset": TensorDataset(x, y), "loader": DataLoader(TensorDataset(x, y), 20)}[form]
    fit = pt.learn(network(), data, validation=0.1, training=QUICK, generator=seeded(), progress=False)
    part, held = split(data, 0.1, seeded(fit.history.seed))
    if form == "tensors":
        again = pt.estimate(fit.model, part, pt.KFAC(), progress=False)
        assert fit.curvature.nll == pytest.approx(again.nll, rel=1e-6)
        assert len(held[0]) == 6
    else:
        assert fit.curvature.count == 54
        first = part if form == "dataset" else part.dataset
        second = held if form == "dataset" else held.dataset
        assert sorted([*first.indices, *second.indices]) == list(range(60))


def test_one_generator_one_result():
    first, again, other = (
        pt.learn(network(), task(0), training=QUICK, generator=seeded(s), progress=False) for s in (1, 1, 2)
    )
    assert first.history == again.history != other.history
    for name, matrix in first.posterior.precision.items():
        assert torch.equal(matrix.dense(), again.posterior.precision[name].dense())
        assert not torch.equal(matrix.dense(), other.posterior.precision[name].dense())


@pytest.mark.parametrize("estimator", [pt.KFAC(), pt.KFOC(), pt.EKFAC(), pt.Diagonal(), pt.curvature.Dense()], ids=str)
def test_every_estimator_serves(estimator):
    fit = pt.learn(network(), task(0), estimator=estimator, training=QUICK, progress=False)
    assert torch.isfinite(fit.posterior.logdet())


def test_a_learning_that_was_interrupted_goes_on_with_its_own_split(tmp_path):
    """Another process has another seed: the examples held out must be the same ones all the same."""
    path = tmp_path / "run.pt"
    learn = partial(pt.learn, data=task(0), validation=0.1, progress=False)
    straight = learn(network(), training=QUICK | {"checkpoint": tmp_path / "other.pt"}, generator=seeded(5))
    learn(network(), training=QUICK | {"epochs": 1, "checkpoint": path}, generator=seeded(5))
    resumed = learn(network(), training=QUICK | {"checkpoint": path}, generator=seeded(77))
    assert resumed.history == straight.history
    assert resumed.curvature.nll == straight.curvature.nll


def test_a_fit_predicts_and_certifies_by_itself():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(60, 3)
    data = (x, (x[:, 0] > 0).long())
    fit = pt.learn(model, data, pt.isotropic(model, 1.0), training={"epochs": 3}, progress=False)
    seed = torch.Generator().manual_seed
    direct = pt.predict(model, fit.posterior, x, method="sampled", samples=5, generator=seed(1))
    assert torch.equal(fit.predict(x, method="sampled", samples=5, generator=seed(1)).probs, direct.probs)
    certificate = fit.certify(data, 0.9, passes=2, generator=seed(1), progress=False)
    assert certificate.n == 60
    assert certificate.confidence == 0.9
    assert 0 < certificate.bound <= 1
