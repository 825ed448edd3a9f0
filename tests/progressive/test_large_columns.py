"""What keeps columns of large networks cheap: shared eigenvectors, forces that lag, draws of what is heard alone."""

from __future__ import annotations

import copy
import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from posterity import BPNN
from posterity.algebra import DiagonalMatrix, eigenframe
from posterity.curvature import GivenFrame
from posterity.errors import BadLearnerFile
from posterity.laplace import prior as prior_module
from posterity.progressive import training
from tests.progressive.made import HEAD, LATERALS, QUICK, bpnn, learned_prior, network, task


def framed(**options: object) -> BPNN:
    prior = learned_prior(network()).without(HEAD).adjusted(1.0, 0.5)
    given = {"frames": prior} | options
    return BPNN(network(), prior, LATERALS, HEAD, **({"training": QUICK, "samples": 10} | given))  # type: ignore[arg-type]


def test_columns_keep_their_posteriors_in_the_frames_given() -> None:
    learner = framed()
    for number in range(2):
        learner.learn(task(number), progress=False)
    assert isinstance(learner._estimator(), GivenFrame)
    sources = {"columns.1.0": "0", "columns.1.2": "2", "columns.1.4": "4", "laterals.1.0.0": "2", "laterals.1.0.1": "4"}
    for block, layer in sources.items():
        own, shared = (
            eigenframe(g.precision[n]) for g, n in ((learner.learned[1].posterior, block), (learner.frames, layer))
        )
        assert own is not None
        assert shared is not None
        assert own.shares_bases(shared)


def test_shared_eigenvectors_are_not_counted_as_a_columns_own() -> None:
    whole, shared = framed(frames=None), framed()
    for learner in (whole, shared):
        learner.learn(task(0), progress=False)
    bases = sum(8 * (8**2 + n**2) for n in (5, 9, 9))
    assert whole.bytes["task 0"] - shared.bytes["task 0"] == bases


def test_earlier_tasks_stay_bit_identical_in_shared_frames() -> None:
    learner = framed()
    learner.learn(task(0), progress=False)
    x = task(0).test[0]  # type: ignore[index]
    before = learner.predict(x, "task 0", generator=torch.Generator().manual_seed(0)).probs
    learner.learn(task(1), progress=False)
    assert torch.equal(learner.predict(x, "task 0", generator=torch.Generator().manual_seed(0)).probs, before)


def test_a_learner_with_shared_frames_asks_for_them_again(tmp_path: Path) -> None:
    learner = framed()
    learner.learn(task(0), progress=False)
    learner.save(tmp_path)
    with pytest.raises(BadLearnerFile, match="frames="):
        BPNN.load(tmp_path, network())
    again = BPNN.load(tmp_path, network(), frames=learner.frames)
    for one in (learner, again):
        one.learn(task(1), progress=False)
    for name, mean in learner.learned[1].posterior.mean.items():
        assert torch.equal(again.learned[1].posterior.mean[name], mean)


def test_what_no_output_depends_on_is_not_drawn_for_a_prediction() -> None:
    """Heads of earlier columns, and what lies behind the last lateral, may be as wide as they like."""
    learner = bpnn()
    for number in range(2):
        learner.learn(task(number), progress=False)
    x = task(1).test[0]  # type: ignore[index]
    before = learner.predict(x, "task 1", generator=torch.Generator().manual_seed(0)).probs
    first = learner.learned[0]
    wide = {n: m / 1e6 if n == f"columns.0.{HEAD}" else m for n, m in first.posterior.precision.items()}
    other = copy.copy(learner)
    other.learned = (replace(first, posterior=replace(first.posterior, precision=wide)), learner.learned[1])
    after = other.predict(x, "task 1", generator=torch.Generator().manual_seed(0)).probs
    assert torch.equal(after, before)
    heard = {n: m / 1e6 if n == "columns.0.0" else m for n, m in first.posterior.precision.items()}
    other.learned = (replace(first, posterior=replace(first.posterior, precision=heard)), learner.learned[1])
    assert not torch.allclose(other.predict(x, "task 1", generator=torch.Generator().manual_seed(0)).probs, before)


def test_a_column_takes_the_products_of_dear_priors_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large network each step takes a part of the products, as `train` does without an optimiser of its own."""
    every: list[int] = []

    class Counting(prior_module.PriorPenalty):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            every.append(self.every)

    monkeypatch.setattr(importlib.import_module("posterity.laplace.train"), "PriorPenalty", Counting)
    bpnn().learn(task(0), progress=False)
    monkeypatch.setattr(prior_module, "CHEAP", 0)
    bpnn().learn(task(0), progress=False)
    bpnn(training=QUICK | {"prior_every": 3}).learn(task(0), progress=False)
    assert every == [1, prior_module.TURNS, 3]


def test_steps_of_large_blocks_are_shortened_by_the_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "is_large", lambda *sides: True)
    model = network()
    prior = learned_prior(model)
    inwards, outwards = training._turn(prior.precision["2"], model)
    same = training._turn(DiagonalMatrix(prior_module.diagonal(prior.precision["2"])), model)
    g = torch.randn(8, 9)
    torch.testing.assert_close(inwards(g), same[0](g))
    torch.testing.assert_close(outwards(g), same[1](g))


def test_steps_of_large_blocks_are_shortened_in_the_eigenvectors_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "is_large", lambda *sides: True)
    model = network()
    matrix = learned_prior(model).adjusted(1.0, 0.5).precision["2"]
    assert eigenframe(matrix) is not None
    inwards, outwards = training._turn(matrix, model)
    g = torch.randn(8, 9)
    truth = matrix.solve(g.double())  # no eigenvalue is below one, where steps would stay as they are
    torch.testing.assert_close(outwards(inwards(g)).double(), truth, rtol=1e-4, atol=1e-5)


def test_the_diagonal_of_a_precision_in_a_frame_is_that_of_its_dense_form() -> None:
    matrix = learned_prior(network()).adjusted(0.3, 0.7).precision["2"]
    torch.testing.assert_close(prior_module.diagonal(matrix).flatten(), matrix.dense().diagonal(), rtol=1e-9, atol=0)
