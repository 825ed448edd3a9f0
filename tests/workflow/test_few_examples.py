"""Few examples after a learned prior: what `learn` and `adapt` do, and that it pays."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posterity as pt
from posterity.data.leave_out import LeaveOut
from posterity.errors import TooLarge
from posterity.kernel import OutputKernel, SharedKernel
from posterity.predictive.exact import AveragedNetworks, ExactLinear
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.predictor import Stack

NAMES = ["north", "east", "south"]


def network(classes: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, classes))


def task(seed: int, n: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Classes by angle in a plane that all tasks share; a seed turns it a little."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    angle = torch.atan2(x[:, 0] + 0.3 * x[:, 1] ** 2, x[:, 2]) + 0.2 * (seed % 3)
    return x, ((angle + torch.pi) / (2 * torch.pi) * classes).long().clamp(0, classes - 1)


@pytest.fixture(scope="module")
def source() -> tuple[pt.Gaussian, nn.Module, pt.Fit]:
    model = network()
    fit = pt.learn(
        model,
        task(0, 1500),
        classes=NAMES,
        training={"epochs": 60, "lr": 1e-2},
        generator=torch.Generator().manual_seed(0),
        progress=False,
    )
    return fit.posterior, model, fit


@pytest.fixture(scope="module")
def learned(source) -> pt.Fit:
    """Trained on fifteen examples after the prior, networks beside the posteriors."""
    return pt.learn(network(), task(1, 15), source[0], classes=NAMES, progress=False)


@pytest.fixture(scope="module")
def adapted(source) -> pt.Fit:
    """The same without training."""
    return pt.adapt(network(), task(1, 15), source[0], classes=NAMES, progress=False)


def nll(probs: Tensor, targets: Tensor) -> float:
    return float(F.nll_loss(probs.clamp_min(1e-9).log(), targets))


def test_many_examples_get_a_structured_posterior_and_few_an_exact_one(source, learned):
    many, fit = source[2], learned
    (_, around), (_, as_trained) = many.predictor.parts
    assert isinstance(around, StructuredGaussian)
    assert isinstance(as_trained, AveragedNetworks)
    assert many.posterior.card.classes == tuple(NAMES)
    (_, exact), (_, networks), *_ = fit.predictor.parts
    assert isinstance(exact, ExactLinear)
    assert isinstance(networks, AveragedNetworks)
    assert isinstance(fit.choice.best.posterior.of.kernel, OutputKernel)
    assert sum(weight for weight, _ in fit.predictor.parts) == pytest.approx(1)
    assert sum(m.weight for m in fit.choice.members) == pytest.approx(1)


def test_the_predictive_is_better_than_plain_fine_tuning(source):
    prior, trained, _ = source
    x, y = task(1, 24)
    new, answers = task(1, 1000)
    fit = pt.learn(network(), (x, y), prior, classes=NAMES, progress=False)
    plain = network()
    plain.load_state_dict(trained.state_dict())
    optimiser = torch.optim.Adam(plain.parameters(), 1e-2)
    for _ in range(200):
        optimiser.zero_grad()
        F.cross_entropy(plain(x), y).backward()
        optimiser.step()
    with torch.no_grad():
        rival = nll(plain(new).softmax(-1), answers)
    assert nll(fit.predict(new).probs, answers) < rival - 0.05


@pytest.mark.parametrize(
    ("classes", "head", "kept"),
    [
        (NAMES, None, True),
        (["a", "b", "c"], None, False),
        (None, None, False),
        (None, "keep", True),
        (NAMES, "new", False),
    ],
)
def test_a_head_is_handed_down_only_where_the_classes_have_the_same_names(source, caplog, classes, head, kept):
    prior = source[0]
    with caplog.at_level(logging.INFO, "posterity"):
        fit = pt.adapt(network(), task(1, 12), prior, classes=classes, head=head, progress=False)
    kernel = fit.choice.best.posterior.of.kernel
    assert isinstance(kernel, OutputKernel if kept else SharedKernel)
    assert any("new head" in m or "head is new" in m for m in caplog.messages) == (not kept)
    assert torch.equal(fit.prior.mean["2"], prior.mean["2"]) == kept


def test_a_task_with_other_classes_has_a_new_head_of_its_own_size(source):
    prior = source[0]
    x, y = task(2, 25, classes=5)
    fit = pt.adapt(network(5), (x, y), prior, progress=False)
    found = fit.predict(task(2, 50, classes=5)[0])
    assert found.probs.shape == (50, 5)
    torch.testing.assert_close(found.probs.sum(-1), torch.ones(50))
    assert fit.posterior.mean["2"].shape == (5, 17)


def test_adapting_leaves_the_network_at_the_priors_mean_and_learning_trains_it(source, adapted, learned):
    prior = source[0]
    assert torch.equal(adapted.posterior.mean["0"], prior.mean["0"])
    assert not torch.equal(learned.posterior.mean["0"], prior.mean["0"])
    # Without other candidates the one that learned predicts as the one that adapted.
    alone, other = (replace(fit, predictor=fit.predictor.parts[0][1]) for fit in (learned, adapted))
    x = task(1, 40)[0]
    torch.testing.assert_close(other.predict(x).probs, alone.predict(x).probs)


def test_learning_averages_posteriors_with_networks_that_left_examples_out(learned):
    fit, (x, y) = learned, task(1, 15)
    (_, exact), (_, networks), *_ = fit.predictor.parts
    assert [share for share, _ in networks.networks] == pytest.approx([0.5] + [0.1] * 5)
    torch.testing.assert_close(networks.networks[0][1]["0"], fit.posterior.mean["0"])
    new = task(2, 30)[0]
    twin = network()
    total = torch.zeros(30, 3)
    for share, weights in networks.networks:
        for name, matrix in weights.items():
            layer = twin[int(name)]
            layer.weight.data, layer.bias.data = matrix[:, :-1], matrix[:, -1]
        with torch.no_grad():
            total += share * (twin(new) / networks.calibration.temperature).softmax(1)
    only = replace(fit, predictor=Stack(((0.0, exact), (1.0, networks)))).predict(new)
    torch.testing.assert_close(only.probs, total, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(only.unknown, fit.predict(new).unknown)
    # What every network had left out scores them: none of the five has seen all examples.
    folds, left_out = LeaveOut.of(y).folds, torch.zeros(15)
    for fold, (_, weights) in enumerate(networks.networks[1:]):
        for name, matrix in weights.items():
            twin[int(name)].weight.data, twin[int(name)].bias.data = matrix[:, :-1], matrix[:, -1]
        left_out[folds == fold] = F.cross_entropy(twin(x), y, reduction="none").detach()[folds == fold]
    assert float(left_out.mean()) > float(F.cross_entropy(fit.model(x).detach(), y))


def test_an_isotropic_prior_is_one_of_the_family(source):
    prior = source[0]
    fit = pt.adapt(network(), task(1, 15), prior, classes=NAMES, shares=(0.0,), progress=False)
    assert {m.posterior.strength.share for m in fit.choice.members} == {0.0}


def test_unknown_inputs_stand_out(adapted):
    near, far = adapted.predict(task(1, 200)[0]).unknown, adapted.predict(6 * task(7, 200)[0]).unknown
    assert near.shape == (200,)
    assert pt.metrics.ood_auroc(near, far) > 0.5


def test_predictions_take_tensors_arrays_datasets_and_loaders(adapted):
    fit = adapted
    x, y = task(1, 30)
    dataset = torch.utils.data.TensorDataset(x, y)
    expected = fit.predict(x).probs
    for given in (
        x.numpy(),
        x.double().numpy(),
        dataset,
        torch.utils.data.DataLoader(dataset, batch_size=7),
        [x[:10], x[10:]],
    ):
        torch.testing.assert_close(fit.predict(given).probs, expected, rtol=1e-4, atol=1e-5)


def test_too_many_examples_are_named(source):
    prior = source[0]
    with pytest.raises(TooLarge, match="1,001 examples with 3 outputs"):
        pt.adapt(network(), task(1, 1001), prior, classes=NAMES, progress=False)


def test_one_example_a_class_and_absent_classes_are_no_trouble(source):
    prior = source[0]
    x, y = task(1, 200)
    one = torch.stack([(y == c).nonzero()[0, 0] for c in range(3)])
    for kept in (one, one[:2]):
        for classes in (NAMES, None):
            fit = pt.adapt(network(), (x[kept], y[kept]), prior, classes=classes, progress=False)
            assert torch.isfinite(fit.predict(x[:50]).probs).all()


def test_groups_are_left_out_together(source):
    prior = source[0]
    x, y = task(1, 8)
    repeated = (x.repeat_interleave(3, 0), y.repeat_interleave(3))
    groups = torch.arange(8).repeat_interleave(3)
    apart = pt.adapt(network(), repeated, prior, classes=NAMES, progress=False)
    together = pt.adapt(network(), repeated, prior, classes=NAMES, groups=groups, progress=False)
    # A copy of the example that is left out gives it away: only groups are honest.
    assert together.choice.best.nll > apart.choice.best.nll


def test_regression_learns_its_noise_and_beats_its_mode():
    torch.manual_seed(1)
    x = torch.rand(80, 1) * 4 - 2
    y = torch.sin(2 * x) + 0.1 * torch.randn(80, 1)
    new = torch.rand(500, 1) * 4 - 2
    answers = torch.sin(2 * new) + 0.1 * torch.randn(500, 1)
    model = nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 1))
    options = {"epochs": 300, "lr": 1e-2}
    fit = pt.learn(model, (x, y), likelihood=pt.GaussianNoise(), training=options, progress=False)
    found = fit.predict(new)
    assert 0.05 < fit.likelihood.value**-0.5 < 0.2

    def gaussian_nll(mean: Tensor, variance: Tensor) -> float:
        return float(0.5 * ((answers - mean) ** 2 / variance + variance.log()).mean())

    with torch.no_grad():
        mode, residual = model(new), (model(x) - y).square().mean()
    assert gaussian_nll(found.mean, found.variance) < gaussian_nll(mode, residual.expand_as(mode)) + 0.02
    outside = fit.predict(torch.full((1, 1), 5.0))
    assert float(outside.epistemic) > 4 * float(found.epistemic.mean())


def test_a_wrong_word_says_what_to_write(source):
    prior = source[0]
    with pytest.raises(Exception, match="keep"):
        pt.learn(network(), task(1, 9), prior, head="old", progress=False)
    with pytest.raises(Exception, match="loo"):
        pt.learn(network(), task(1, 9), prior, scales="best", progress=False)


def test_a_prior_that_is_held_firmly_still_finds_far_inputs_unknown(source):
    """Where the prior's mean already serves the task, leave-one-out may hold on to it: the score must not go with that."""
    fit = pt.adapt(network(), task(3, 12), source[0], classes=NAMES, shares=(1.0,), progress=False)
    found, far = fit.predict(task(3, 200)[0]), fit.predict(8 * task(6, 200)[0])
    assert pt.metrics.ood_auroc(found.unknown, far.unknown) > pt.metrics.ood_auroc(found.entropy, far.entropy) + 0.05
