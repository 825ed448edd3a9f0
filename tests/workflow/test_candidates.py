"""Candidates after a source and around a trained network: which there are, what they weigh, and that none is lost in a file."""

from __future__ import annotations

import pytest
import torch
from outcomes import NAMES, adapt, learn, network, points, posterior, source, trained

import posterity as pt
from posterity.predictive.beside_network import HeadOnFeatures
from posterity.predictive.exact import AveragedNetworks, ExactLinear
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.predictor import Stack
from posterity.workflow.recipe import Limits, Recipe, Stacking

X = points(1000, 8)[0]


def parts(fit):
    assert isinstance(fit.predictor, Stack)
    return {type(part): weight for weight, part in fit.predictor.parts}


def test_a_new_head_has_two_candidates_without_training_and_three_with():
    assert adapt(0).plan.ways == ("exact around the prior", "head alone")
    found = learn(0, prior=source(0))
    assert found.plan.ways == ("exact around the prior", "networks from the prior", "head alone")
    assert sum(parts(found).values()) == 1
    assert "weights: exact around the prior 0." in found.plan.reasons[-1]


def test_a_head_that_is_kept_has_the_prior_as_it_is_beside_it():
    assert adapt(0, head="keep").plan.ways == ("exact around the prior", "prior alone")


def test_a_posterior_asked_for_by_its_details_speaks_alone():
    assert adapt(0, shares=(0.0,)).plan.ways == ("exact around the prior",)
    assert adapt(0, points(0, 9), head="keep", inference=pt.kernel.VariationalGaussian()).plan.ways == (
        "exact around the prior",
    )


def test_a_class_without_an_example_leaves_no_head_alone():
    x, y = points(0)
    fit = pt.adapt(network(0), (x[y < 2], y[y < 2]), source(0), classes=NAMES, progress=False)
    assert fit.plan.ways == ("exact around the prior", "prior alone")


def test_the_prior_as_it_is_speaks_where_the_task_is_the_source():
    prior, model = source(0), network(0)
    prior.write_to(model)
    with torch.no_grad():
        labels = model.eval()(points(3)[0]).argmax(1)
        labels[:3] = torch.arange(3)
    fit = pt.adapt(network(1), (points(3)[0], labels), prior, classes=NAMES, progress=False)
    least = {way: Stacking().counts[way] / (24 + 2) for way in fit.plan.ways}
    assert parts(fit)[AveragedNetworks] > 5 * least["prior alone"]


def test_with_one_label_a_class_weights_are_beliefs_and_the_exact_posterior_has_two_temperatures():
    fit = adapt(0, points(0, 3))
    found = parts(fit)
    assert found[ExactLinear] == pytest.approx(2 / 3)
    assert found[HeadOnFeatures] == pytest.approx(1 / 3)
    assert [m.calibration.temperature for m in fit.choice.members] == [0.4, 1.0]
    assert "nothing can be left out" in fit.plan.reasons[1]


def test_a_head_alone_predicts_the_same_from_a_file(tmp_path):
    fit = adapt(0)
    assert HeadOnFeatures in parts(fit)
    fit.save(tmp_path / "one.fit")
    again = pt.load(tmp_path / "one.fit", network(5))
    torch.testing.assert_close(again.predict(X).probs, fit.predict(X).probs, rtol=0, atol=0)
    bare = fit.predictor.parts[1][1].head
    assert bare.axes.vectors.numel() == 0


def test_predictions_of_a_head_alone_leave_the_network_as_it_was():
    fit = adapt(0)
    before = {name: value.clone() for name, value in fit.model.state_dict().items()}
    fit.model.train()
    fit.predict(X)
    assert fit.model.training
    assert all(torch.equal(before[name], value) for name, value in fit.model.state_dict().items())


def test_validation_weighs_the_network_with_a_temperature_beside_the_gaussian():
    fit = posterior(0, validation=points(5, 300))
    found = parts(fit)
    assert found.keys() == {StructuredGaussian, AveragedNetworks}
    y = points(6, 300)[1]
    probs = fit.predict(points(6, 300)[0]).probs
    with torch.no_grad():
        logits = trained(0).eval()(points(6, 300)[0])
    plain = min(float(torch.nn.functional.cross_entropy(logits / t, y)) for t in torch.linspace(0.3, 5, 60))
    # Not behind a temperature that the test labels chose, by more than one chosen on 300 others may be.
    assert float(torch.nn.functional.nll_loss(probs.log(), y)) < plain + 0.02


def test_a_large_network_is_uncertain_in_its_last_layer_alone():
    few = Recipe(limits=Limits(products=10.0))
    fit = posterior(0, recipe=few)
    assert fit.plan.ways == ("structured, last layer",)
    assert list(fit.posterior.blocks) == ["2"]
    assert list(posterior(0, recipe=few, method="structured").posterior.blocks) == ["0", "2"]
    assert posterior(0).plan.ways == ("structured",)
