"""What hurried users and services do to a fit: refused by name before anything is learned, or done as it should be."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from outcomes import network, points
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

import posterity as pt
from posterity.errors import BadData, NoData, OtherNetwork, TooLittleMemory, UnsupportedNetwork, WrongChoice
from posterity.workflow.plan import Facts, choose_plan
from posterity.workflow.recipe import FromScratch, Limits, Recipe

X, Y = points(0)
QUICK = Recipe(from_scratch=FromScratch(steps=5))


def last_layer(model: nn.Module, **options: Any) -> pt.Fit:
    head = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
    dtype = next(model.parameters()).dtype
    return pt.posterior(model, (X.to(dtype), Y), blocks=[head], progress=False, **options)


class Keeps(nn.Module):
    """A network that keeps its features, as many do that show their attention."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network(0)
        self.seen: dict[str, list[Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.features = self.inner[:-1](x)
        self.seen = {"features": [self.features]}
        return self.inner[-1](self.features)


def test_networks_that_keep_activations_are_learned_and_predict() -> None:
    model = Keeps()
    model(X)
    fit = pt.learn(model, (X, Y), recipe=QUICK, progress=False)
    model(X)
    assert torch.equal(fit.predict(X).probs, fit.predict(X).probs)


def test_networks_that_cannot_be_copied_are_refused_before_they_are_trained() -> None:
    model = network(0)
    model.lock = threading.Lock()  # type: ignore[assignment]
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with pytest.raises(UnsupportedNetwork, match="cannot be copied"):
        pt.learn(model, (X, Y), method="one network", progress=False)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_arrays_take_the_precision_of_the_network(dtype: torch.dtype) -> None:
    fit = last_layer(network(0).to(dtype))
    assert torch.equal(fit.predict(X.double().numpy()).probs, fit.predict(X.to(dtype)).probs)


def test_a_network_of_another_precision_is_another_network(tmp_path: Path) -> None:
    last_layer(network(0)).save(tmp_path / "a.fit")
    with pytest.raises(OtherNetwork, match=r"float32 in the file and .*float64"):
        pt.load(tmp_path / "a.fit", network(0).double())


def test_a_class_in_place_of_a_network_is_not_called_a_damaged_file(tmp_path: Path) -> None:
    last_layer(network(0)).save(tmp_path / "a.fit")
    with pytest.raises(UnsupportedNetwork):
        pt.load(tmp_path / "a.fit", nn.Linear)  # type: ignore[arg-type]


def test_a_fit_that_is_loaded_in_inference_mode_predicts_the_same(tmp_path: Path) -> None:
    fit = pt.learn(network(0), (X, Y), method="one network", training={"epochs": 1}, progress=False)
    fit.save(tmp_path / "a.fit")
    with torch.inference_mode():
        loaded = pt.load(tmp_path / "a.fit", network(1))
    assert torch.equal(loaded.predict(X).probs, fit.predict(X).probs)


@pytest.mark.parametrize("method", [None, "linearised", "sampled", "jvp"])
def test_an_iterator_of_inputs_is_read_once(method: Any) -> None:
    found = last_layer(network(0)).predict(iter([X[:3], X[3:5]]), method=method)
    assert len(found.probs) == 5


def test_one_input_without_a_batch_is_named() -> None:
    with pytest.raises(BadData, match="single input"):
        last_layer(network(0)).predict(X[0])


@pytest.mark.parametrize("option", [{"samples": 0}, {"batch_size": 0}])
def test_predictions_of_nothing_are_refused(option: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        last_layer(network(0)).predict(X, **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", ["learn", "adapt", "posterior"])
def test_data_that_is_used_up_by_one_reading_is_refused_at_once(verb: str) -> None:
    with pytest.raises(BadData, match="used up"):
        _call(verb, iter([(X, Y)]))


@pytest.mark.parametrize("verb", ["learn", "adapt", "posterior"])
def test_groups_of_a_shuffled_loader_are_refused(verb: str) -> None:
    data = TensorDataset(X, Y)
    for shuffled in (
        DataLoader(data, 8, shuffle=True),
        DataLoader(data, 8, sampler=SubsetRandomSampler(range(len(Y)))),
    ):
        with pytest.raises(BadData, match="another order"):
            _call(verb, shuffled, groups=torch.arange(len(Y)) // 2)


@pytest.mark.parametrize("verb", ["learn", "adapt", "posterior"])
def test_no_example_is_called_that(verb: str) -> None:
    with pytest.raises(NoData):
        _call(verb, DataLoader(TensorDataset(X, Y), len(Y) + 1, drop_last=True))


def _call(verb: str, data: Any, **options: Any) -> pt.Fit:
    if verb == "adapt":
        return pt.adapt(network(0), data, pt.isotropic(network(1), mean="model"), progress=False, **options)
    if verb == "posterior":
        return pt.posterior(network(0), data, blocks=["2"], progress=False, **options)
    return pt.learn(network(0), data, recipe=QUICK, progress=False, **options)


def test_streams_beyond_memory_are_planned_without_a_length() -> None:
    class Stream(IterableDataset[tuple[Tensor, Tensor]]):
        def __iter__(self) -> Any:
            return iter(zip(X, Y, strict=True))

    few = Recipe(limits=Limits(examples=4))
    fit = pt.posterior(network(0), DataLoader(Stream(), 8), blocks=["2"], recipe=few, progress=False)
    assert fit.curvature.count == len(Y)


def test_groups_beyond_memory_are_counted() -> None:
    few = Recipe(limits=Limits(examples=4))
    with pytest.raises(BadData, match="groups has 3"):
        last_layer(network(0), groups=torch.arange(3), recipe=few)


def test_adapt_trains_nothing() -> None:
    with pytest.raises(WrongChoice, match=r"pt\.learn"):
        pt.adapt(network(0), (X, Y), pt.isotropic(network(0)), progress=False)
    with pytest.raises(ValueError, match="scales"):
        pt.adapt(network(0), (X, Y), pt.isotropic(network(1), mean="model"), scales="bayes", progress=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"recipe": {"steps": 3}}, WrongChoice),
        ({"training": ["epochs"]}, WrongChoice),
        ({"link": "logit"}, ValueError),
    ],
)
def test_choices_are_looked_at_before_training(options: dict[str, Any], error: type[Exception]) -> None:
    model = network(0)
    before = model[0].weight.clone()
    with pytest.raises(error, match=next(iter(options))):
        pt.learn(model, (X, Y), progress=False, **options)
    assert torch.equal(before, model[0].weight)


def test_a_precision_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        last_layer(network(0), precision=0.0)


FACTS = {"examples": 10, "outputs": 3, "regression": False, "weights": 100}


@pytest.mark.parametrize(
    ("facts", "method"),
    [
        ({"prior": "learned", "criterion": "bayes"}, "exact around the prior"),
        ({"criterion": "evidence"}, "networks from scratch"),
        ({"trained_as_asked": True}, "networks from scratch"),
        ({"regression": True, "noise_per_input": True}, "small networks"),
        ({"regression": True, "can_leave_out": False}, "small networks"),
    ],
)
def test_a_method_that_would_break_or_ignore_an_option_is_not_possible(facts: dict[str, Any], method: str) -> None:
    assert choose_plan(Facts("learn", **(FACTS | facts)), "one network").ways == ("one network",)  # type: ignore[arg-type]
    with pytest.raises(WrongChoice, match="not possible"):
        choose_plan(Facts("learn", **(FACTS | facts)), method)  # type: ignore[arg-type]


def test_reasons_say_what_is_so() -> None:
    assert "one network on all" in str(choose_plan(Facts("learn", **(FACTS | {"can_leave_out": False}))))  # type: ignore[arg-type]
    assert "1 example:" in str(choose_plan(Facts("learn", **(FACTS | {"examples": 1}))))  # type: ignore[arg-type]
    model = network(0)
    pt.train(model, (X, Y), epochs=20, progress=False)
    assert "no linear layer" not in str(pt.posterior(model, (X, Y), blocks=["2"], progress=False).plan)
    assert '"0"' in str(pt.posterior(model, (X, Y), blocks=["0"], progress=False).plan)


def test_more_classes_than_memory_holds_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posterity.memory.available_memory", lambda: 1000)
    with pytest.raises(TooLittleMemory, match="left-out examples"):
        pt.learn(network(0), (X, Y), recipe=QUICK, progress=False)
