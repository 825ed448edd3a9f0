"""A fit in a service: the same numbers from every thread and every process, and the user's network is left alone."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch
from served import EVERY_KIND, KINDS, X, fit, path, said
from torch import Tensor, nn

import posterity as pt

THREADS = 8


def everything(model: nn.Module) -> dict[str, object]:
    """All of a module that a prediction could change."""
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "same tensors": [id(x) for x in (*model.parameters(), *model.buffers())],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "grad": [p.grad for p in model.parameters()],
        "mode": [module.training for module in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
        "own names": [sorted(vars(module)) for module in model.modules()],
    }


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], what: str) -> None:
    assert one.keys() == other.keys(), what
    for name in one:
        assert torch.equal(one[name], other[name]), f"{what}: {name}"


def predictions(predict: Callable[[Tensor], pt.Prediction], each: int) -> None:
    """Eight threads that begin together, each with inputs of its own; compared with one thread's predictions, bit for bit."""
    inputs = [X[k:].contiguous() for k in range(4)]
    alone = [said(predict(x)) for x in inputs]
    together = Barrier(THREADS)

    def work(thread: int) -> None:
        together.wait()
        for k in range(each):
            which = (thread + k) % len(inputs)
            assert_same(said(predict(inputs[which])), alone[which], f"thread {thread}, prediction {k}")

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(work, thread) for thread in range(THREADS)]:
            future.result()


@pytest.mark.parametrize("each", [6, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_eight_threads_predict_the_same_as_one_and_leave_the_network_alone(kind, each):
    of = fit(kind)
    before = everything(of.model)
    predictions(of.predict, each)
    after = everything(of.model)
    assert_same(before.pop("weights"), after.pop("weights"), "weights")
    assert after == before


@pytest.mark.parametrize("method", ["linearised", "sampled", "jvp"])
def test_eight_threads_predict_the_same_as_one_by_every_method(method):
    def predict(x: Tensor) -> pt.Prediction:
        return fit("posterior").predict(x, method=method, samples=10, generator=torch.Generator().manual_seed(0))

    predictions(predict, each=6)


@pytest.mark.parametrize("kind", ["posterior", "posterior, last layer"])
def test_predicting_with_a_gaussian_leaves_no_hook_on_the_users_network(kind):
    of = fit(kind)
    before = everything(of.model)["hooks"]
    assert pt.predict(of.model, of.posterior, X).unknown is not None
    assert everything(of.model)["hooks"] == before


@pytest.mark.parametrize("kind", KINDS)
def test_what_happens_to_the_network_afterwards_changes_no_prediction(kind):
    of = copy.copy(fit(kind))
    alone, state = said(of.predict(X)), copy.deepcopy(of.model.state_dict())
    try:
        with torch.no_grad():
            for p in of.model.parameters():
                p.zero_()
        of.model.train().requires_grad_(False)
        assert_same(said(of.predict(X)), alone, "after the network was cleared")
    finally:
        of.model.load_state_dict(state)
        of.model.eval().requires_grad_(True)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_predictions_under_inference_mode_are_the_same(kind):
    of = fit(kind)
    alone = said(of.predict(X))
    with torch.inference_mode():
        assert_same(said(of.predict(X.clone())), alone, "under inference_mode")


@pytest.mark.parametrize("kind", ["posterior", "posterior, last layer", "learn, prior, new head"])
def test_a_loaded_fit_of_a_frozen_network_predicts_the_same(kind, tmp_path):
    of = fit(kind)
    of.save(tmp_path / "one.fit")
    frozen = copy.deepcopy(of.model).requires_grad_(False)
    again = pt.load(tmp_path / "one.fit", frozen)
    assert_same(said(again.predict(X)), said(of.predict(X)), "from a frozen network")
    assert not any(p.requires_grad for p in frozen.parameters())


def test_every_kind_of_fit_predicts_the_same_to_the_last_bit_in_a_new_process(tmp_path):
    for kind in EVERY_KIND:
        fit(kind).save(path(tmp_path, kind))
    script = Path(__file__).with_name("served.py")
    # The same threads as here, or sums are added in another order.
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, script, tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    again = torch.load(tmp_path / "said.pt")
    assert again.keys() == set(EVERY_KIND)
    for kind, there in again.items():
        assert_same(there, said(fit(kind).predict(X)), kind)
