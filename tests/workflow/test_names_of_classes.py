"""Labels that are text come back as text, and a head that is kept numbers them as its card does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import BadData, BadTargets

NAMES = ("a", "b", "c")
QUICK = {"training": {"epochs": 30}, "progress": False}
pytestmark = pytest.mark.filterwarnings("ignore:training ended")


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, outputs))


def examples(n: int, seed: int, names=NAMES):
    generator = torch.Generator().manual_seed(seed)
    labels = [names[i % len(names)] for i in range(n)]
    centres = torch.eye(3)[[NAMES.index(name) for name in labels]]
    return centres + 0.1 * torch.randn(n, 3, generator=generator), labels


@pytest.fixture(scope="module")
def prior() -> pt.Gaussian:
    return pt.learn(network(), examples(60, 0), **QUICK).posterior


def dice() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("verb", ["learn", "adapt"])
def test_labels_that_lack_a_class_are_numbered_by_the_card_of_a_kept_head(verb, prior):
    few = examples(8, 1, ("b", "c"))
    if verb == "learn":
        fit = pt.learn(network(), few, prior, head="keep", generator=dice(), progress=False)
    else:
        fit = pt.adapt(network(), few, prior, head="keep", progress=False)
    x, truth = examples(60, 2, ("b", "c"))
    found = fit.predict(x)
    assert fit.classes == NAMES
    assert sum(name == other for name, other in zip(found.classes, truth, strict=True)) >= 57


def test_a_new_head_takes_the_names_of_the_data(prior):
    fit = pt.adapt(network(2), examples(8, 1, ("b", "c")), prior, progress=False)
    assert fit.classes == ("b", "c")


@pytest.mark.parametrize("outputs", [2, 4])
def test_names_that_are_not_one_for_each_output_are_an_error(outputs):
    with pytest.raises(BadTargets, match=rf"3 names of classes .* {outputs} outputs"):
        pt.learn(network(outputs), (examples(12, 0)[0], torch.zeros(12).long()), classes=NAMES, **QUICK)


def test_a_trained_network_is_not_given_labels_in_another_order():
    with pytest.raises(BadTargets, match="2 names"):
        pt.posterior(network(), examples(20, 1, ("b", "c")), progress=False)


def test_predictions_have_the_names_of_their_classes(prior):
    x, truth = examples(30, 2)
    found = pt.learn(network(), examples(30, 3), **QUICK).predict(x)
    assert found.names == NAMES
    assert found.classes == [NAMES[i] for i in found.labels.tolist()]
    assert sum(name == other for name, other in zip(found.classes, truth, strict=True)) >= 27
    numbered = pt.learn(network(), (x, torch.arange(30) % 3), **QUICK).predict(x)
    with pytest.raises(BadData, match="have no names"):
        _ = numbered.classes
