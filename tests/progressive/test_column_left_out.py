"""A column's width and softness by leave-one-out: no validation data, earlier columns at their means."""

from __future__ import annotations

import math

import pytest
import torch
from made import HEAD, LATERALS, bpnn, learned_prior, network, task

from posterity import BPNN, EKFAC, KFOC, Scales, Task
from posterity.errors import BadLearnerFile
from posterity.kernel import Calibration
from posterity.progressive import left_out

ARRIVES = {"epochs": 60, "lr": 2e-2, "batch_size": 64}


def bare(number: int, n: int = 40) -> Task:
    """A task with nothing but data to learn from."""
    whole = task(number, n=n)
    return Task(whole.name, whole.train, classes=whole.classes)


@pytest.fixture(scope="module")
def learner() -> BPNN:
    found = bpnn(scales="loo", training=ARRIVES)
    for number in (0, 1):
        found.learn(bare(number), progress=False)
    return found


def test_a_task_needs_no_validation_data_and_earlier_tasks_stay(learner):
    assert isinstance(learner.estimator, EKFAC)
    assert isinstance(BPNN(network(), learned_prior(network()), LATERALS, HEAD, scales=Scales()).estimator, KFOC)
    for entry in learner.learned:
        assert entry.calibration.tau in left_out.TAUS
        assert entry.calibration.temperature >= 1
    again = bpnn(scales="loo", training=ARRIVES)
    again.learn(bare(0), progress=False)
    x = task(0).test[0]
    assert torch.equal(again.predict(x, "task 0").probs, learner.predict(x, "task 0").probs)


def test_predictions_are_good_and_unknown_scores_keep_the_full_width(learner):
    for number in (0, 1):
        x, y = task(number).test
        found = learner.predict(x, f"task {number}")
        assert float((found.probs.argmax(1) == y).float().mean()) > 0.75
        entry = learner.learned[number]
        assert entry.calibration.tau == 1 or float(found.unknown.mean()) > float(found.entropy.mean())


def test_random_labels_make_soft_predictions():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(5))
    y = torch.randint(2, (60,), generator=torch.Generator().manual_seed(6))
    model = network()
    # A prior that lets the column learn its labels by heart.
    learner = BPNN(model, learned_prior(model).tempered(300.0), LATERALS, HEAD, training=ARRIVES)
    learner.learn(Task("noise", (x, y), classes=2), progress=False)
    new = torch.randn(400, 4, generator=torch.Generator().manual_seed(7))
    coin = torch.randint(2, (400,), generator=torch.Generator().manual_seed(8))
    chosen = float(-learner.predict(new, "noise").probs.log()[torch.arange(400), coin].mean())
    hard = float(-learner.network("noise")(new).detach().log_softmax(-1)[torch.arange(400), coin].mean())
    assert chosen < math.log(2) + 0.15
    assert chosen < hard - 0.03


def test_many_examples_are_left_out_of_the_structured_posterior(learner, monkeypatch):
    entry = learner.learned[1]
    network_at_means = learner._network([e.column for e in learner.learned], past=1).eval()
    wide = entry.posterior.tempered(1 / entry.calibration.tau)
    given = (network_at_means, entry.prior, wide, bare(1))
    exact, nll = left_out.column_calibration(*given)
    assert math.isfinite(nll)
    assert exact == entry.calibration
    monkeypatch.setattr(left_out, "SIDE", 0)
    found, _ = left_out.column_calibration(*given)
    assert found.tau in left_out.TAUS
    # A posterior far too wide for its own examples has nothing to be left out of: the network speaks for itself.
    unsure, nll = left_out.column_calibration(*given[:2], wide.tempered(1e6), *given[3:])
    assert (unsure, nll) == (Calibration(1e-6, 1.0), math.inf)


def test_the_prior_is_chosen_among_several_without_validation_data():
    model = network()
    learner = bpnn(scales="loo", training=ARRIVES)
    rigid, right = learned_prior(model).tempered(1e-8), learned_prior(model)
    entry = learner.draft(bare(0), prior=[rigid, right], progress=False)
    assert entry.prior.precision["columns.0.0"] is right.precision["0"]
    assert [(c.what, c.options) for c in entry.prior.provenance.choices] == [("the prior", 2)]


def test_what_was_chosen_is_saved_and_loaded(learner, tmp_path):
    learner.save(tmp_path / "a")
    again = BPNN.load(tmp_path / "a", network())
    x = task(1).test[0]
    assert [e.calibration for e in again.learned] == [e.calibration for e in learner.learned]
    assert torch.equal(again.predict(x, "task 1").probs, learner.predict(x, "task 1").probs)
    assert again.scales == "loo"
    first, second = (tmp_path / "a" / f"column-00{k}.safetensors" for k in (0, 1))
    first.write_bytes(second.read_bytes())
    with pytest.raises(BadLearnerFile, match="is not the file that was saved"):
        BPNN.load(tmp_path / "a", network())
