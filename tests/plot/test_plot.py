"""Pictures: axes in, axes out, and what is drawn is what was given."""

from __future__ import annotations

import builtins
from dataclasses import replace

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import BadData, NotInstalled
from posterity.laplace import Epoch
from posterity.pacbayes.certificate import Certificate, Holdout
from posterity.plot.certificates import losses

Figure = pytest.importorskip("matplotlib.figure", reason="pictures need matplotlib").Figure


def probs_and_labels(n=300, classes=4):
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(n, classes, generator=generator).softmax(-1)
    return probs, torch.multinomial(probs, 1, generator=generator)[:, 0]


def certificate(rule="klinv"):
    base = Certificate(
        0.0, 0.95, rule, "a network drawn at random from the posterior", 0.04, 0.01, 500, 0.1, 0.11, Holdout(0.09, 0.13)
    )
    base = replace(base, replicates=5000, kl=40.0, payments=(("the strength of the prior", 12),), errors=50)
    if rule == "excess":
        base = replace(base, shares=(0.97, 0.05))
    return replace(base, bound=base.recomputed())


def history():
    return pt.laplace.History(tuple(Epoch(1.0 / k, 1.0 / k, 0.5, 1.2 / k, 0.5, 1e-3) for k in range(1, 6)), 4)


EVERY = {
    "spectrum": lambda ax: pt.plot.spectrum(pt.isotropic(nn.Linear(3, 2), 7.0), ax),
    "spectra": lambda ax: pt.plot.spectrum(
        {"a": pt.isotropic(nn.Linear(3, 2), 7.0), "b": pt.isotropic(nn.Linear(3, 2))}, ax
    ),
    "reliability": lambda ax: pt.plot.reliability(*probs_and_labels(), ax, label="ours"),
    "confusion": lambda ax: pt.plot.confusion(*probs_and_labels(), ax, classes=["a", "b", "c", "d"]),
    "coverage": lambda ax: pt.plot.coverage(*probs_and_labels(), ax),
    "waterfall": lambda ax: pt.plot.waterfall(certificate(), ax),
    "unknown": lambda ax: pt.plot.unknown(torch.rand(50), torch.rand(40) + 1, ax),
    "gallery": lambda ax: pt.plot.gallery(torch.rand(30, 1, 8, 8), torch.rand(30), ax),
    "training": lambda ax: pt.plot.training(history(), ax),
    "regression": lambda ax: pt.plot.regression(torch.zeros(9), torch.ones(9), torch.linspace(-1, 3, 9), ax),
}


@pytest.mark.parametrize("name", EVERY)
def test_axes_go_in_and_come_out_or_are_made(name):
    given = Figure().subplots()
    assert EVERY[name](given) is given
    made = EVERY[name](None)
    assert made.get_title(loc="left")
    made.get_figure(root=True).canvas.draw()


def test_reliability_draws_what_reliability_measures():
    probs, labels = probs_and_labels()
    line = pt.plot.reliability(probs, labels).get_lines()[1]
    found = pt.metrics.reliability(probs, labels)
    assert line.get_xdata().tolist() == pytest.approx(found.confidence)
    assert line.get_ydata().tolist() == pytest.approx(found.accuracy)


def test_a_confusion_matrix_counts_every_example_once():
    probs, labels = probs_and_labels()
    ax = pt.plot.confusion(probs, labels)
    assert sum(int(t.get_text()) for t in ax.texts) == len(labels)
    shares = torch.as_tensor(ax.get_images()[0].get_array().data)
    assert torch.allclose(shares.sum(1), torch.ones(4, dtype=shares.dtype))


def test_coverage_ends_at_the_accuracy():
    probs, labels = probs_and_labels()
    line = pt.plot.coverage(probs, labels).get_lines()[0]
    assert line.get_ydata()[-1] == pytest.approx(pt.metrics.score(probs, labels).accuracy)
    half = pt.metrics.selective_accuracy(probs, labels, 0.5)
    assert line.get_ydata()[list(line.get_xdata()).index(0.5)] == pytest.approx(half)


@pytest.mark.parametrize("rule", ["klinv", "binomial", "excess"])
def test_the_steps_of_a_waterfall_sum_to_the_bound(rule):
    one = certificate(rule)
    one = replace(one, kl=0.0) if rule == "binomial" else one
    one = replace(one, bound=one.recomputed())
    steps = losses(one)
    assert sum(steps.values()) == pytest.approx(one.bound, abs=1e-5)
    assert steps["error of the predictor"] == one.gibbs
    if rule == "klinv":
        assert all(value > 0 for value in steps.values())
        assert set(steps) >= {"KL to the prior", "choices made by looking", "finitely many draws"}


def test_an_isotropic_prior_is_one_dot_at_its_precision():
    line = pt.plot.spectrum(pt.isotropic(nn.Linear(3, 2), 7.0)).get_lines()[0]
    assert line.get_xdata().tolist() == [7.0]
    assert line.get_ydata().tolist() == [1.0]


def test_the_strangest_images_come_first():
    scores = torch.arange(30.0)
    texts = [t.get_text() for t in pt.plot.gallery(torch.rand(30, 1, 8, 8), scores, rows=1, columns=3).texts]
    assert texts == ["29.00", "28.00", "27.00"]
    with pytest.raises(BadData, match="images have shape"):
        pt.plot.gallery(torch.rand(30, 8), scores)


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotInstalled, match="pip install matplotlib"):
        pt.plot.coverage(*probs_and_labels())
