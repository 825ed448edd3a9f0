"""Weights averaged over the last epochs: which they are, what they have seen, and that a kill changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from training_worker import network, task

import posterity as pt
from posterity.errors import BadCheckpoint, NoCertificate
from posterity.laplace import checkpoint as module

OPTIONS = {"lr": 0.05, "batch_size": 8, "progress": False, "validation": None}


def run(path=None, epochs=6, average=2, **more):
    torch.manual_seed(0)
    model = network()
    dice = torch.Generator().manual_seed(3)
    options = OPTIONS | more
    return model, pt.train(model, task(), epochs=epochs, average=average, checkpoint=path, generator=dice, **options)


class Noted(torch.optim.SGD):
    """Plain descent that writes down where it has been."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr)
        self.places = []

    def step(self, closure=None):
        loss = super().step(closure)
        self.places.append([p.detach().double().clone() for group in self.param_groups for p in group["params"]])
        return loss


def test_the_network_is_left_with_the_mean_over_every_step_of_the_last_epochs():
    made = []

    def optimiser(parameters):
        made.append(Noted(parameters, 0.1))
        return made[0]

    model, history = run(optimiser=optimiser)
    places = made[0].places
    last = places[-len(places) // 3 :]  # two of six epochs
    assert len(history.epochs) == 7
    assert history.best == 6
    for number, p in enumerate(model.parameters()):
        expected = torch.stack([place[number] for place in last]).mean(0)
        assert torch.allclose(p.double(), expected, atol=1e-7)
        assert not torch.allclose(p.double(), places[-1][number], atol=1e-7)


def test_the_last_line_of_the_history_speaks_of_the_average():
    model, history = run()
    x, y = task()
    nll = nn.functional.cross_entropy(model(x), y)
    assert history.final.nll == pytest.approx(float(nll.detach()), rel=1e-5)
    assert history.final is history.epochs[-1]


def test_a_run_that_stopped_while_averaging_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    straight, history = run()
    real, saved = module.Checkpoint.save, []

    def stop(self):
        real(self)
        saved.append(len(self.epochs))
        if len(self.epochs) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(module.Checkpoint, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run.pt")
    monkeypatch.setattr(module.Checkpoint, "save", real)
    again, resumed = run(tmp_path / "run.pt")
    assert saved[-1] == 5
    assert repr(resumed.epochs) == repr(history.epochs)  # of NaN too
    assert all(torch.equal(p, q) for p, q in zip(straight.parameters(), again.parameters(), strict=True))


def test_a_checkpoint_with_another_average_is_refused(tmp_path):
    run(tmp_path / "run.pt")
    with pytest.raises(BadCheckpoint, match="average was 2 and is 3"):
        run(tmp_path / "run.pt", average=3)


def test_an_average_has_seen_what_its_steps_have():
    model, _ = run()
    prior = pt.isotropic(model, 100.0, mean="model")
    with pytest.raises(NoCertificate):
        pt.certify(model, prior, prior, task(), progress=False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epochs": None}, "say how many epochs"),
        ({"average": -1}, "0 or more, not -1"),
    ],
)
def test_an_average_of_nothing_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        run(**change)


def test_norm_statistics_that_no_batch_has_measured_are_refused():
    x, y = task()
    model = nn.Sequential(nn.Linear(x.shape[1], 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).to(x.dtype)
    with pytest.raises(ValueError, match="norm statistics"):
        pt.train(model, (x, y), epochs=2, average=1, progress=False)
