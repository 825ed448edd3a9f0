"""A fit saved without its training examples predicts the same, and holds nothing of any one of them."""

from __future__ import annotations

import logging

import pytest
import torch
from served import KINDS, X, blank, fit, said
from torch import Tensor

import posterity as pt
from posterity.errors import NotStorable
from posterity.kernel.directions import without_examples
from posterity.workflow.file import read_manifest


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_without_its_examples_predicts_the_same(kind, tmp_path):
    of = fit(kind)
    of.save(tmp_path / "one.fit", examples=False)
    again = pt.load(tmp_path / "one.fit", blank(kind))
    wanted, found = said(of.predict(X)), said(again.predict(X))
    for name in ("mean", "unknown"):
        torch.testing.assert_close(found[name], wanted[name], rtol=2e-4, atol=2e-5)
    again.save(tmp_path / "two.fit", examples=False)


@pytest.mark.parametrize("kind", KINDS)
def test_no_example_target_or_output_of_one_is_in_the_file(kind, tmp_path):
    of = fit(kind)
    of.save(tmp_path / "one.fit", examples=False)
    manifest = read_manifest(tmp_path / "one.fit")
    assert manifest.raw["examples"] is None
    single = ("targets", "outputs", "start", "log_probs")
    for name, x in manifest.tensors.items():
        assert not (name.startswith("predictor/") and name.endswith(single) and x.any()), name
    if of.examples is not None:
        inputs = of.examples.whole.positional[0].flatten(1)
        for name, x in manifest.tensors.items():
            if x.ndim and x.is_floating_point() and x.numel() and x.shape[-1] in (inputs.shape[1], inputs.shape[1] + 1):
                rows = x.reshape(-1, x.shape[-1])[:, : inputs.shape[1]].double()
                assert float(torch.cdist(rows, inputs.double()).min()) > 1e-6, name


def test_fewer_directions_leave_the_covariance_too_wide_and_never_too_narrow():
    exact = fit("adapt, head kept").predictor.parts[0][1]
    posterior = exact.choice.best.posterior
    new = posterior.of.train
    mean, covariance = posterior.moments(new)
    size = sum(m.numel() for m in exact.point.values())
    widths: list[Tensor] = []
    for directions in (2, 5, 20, 1000):
        (less,) = without_examples([posterior], (directions + 1) * size, torch.float64)
        other, wider = less.moments(new)
        torch.testing.assert_close(other, mean, rtol=1e-9, atol=1e-9)
        assert float(torch.linalg.eigvalsh(wider - covariance).min()) > -1e-9
        widths.append(wider.diagonal(dim1=-2, dim2=-1).sum())
    assert widths[0] > widths[1] > widths[2] > (1 + 1e-6) * widths[3]
    torch.testing.assert_close(wider, covariance, rtol=1e-7, atol=1e-9)


def test_what_is_given_up_is_said(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "posterity"):
        fit("adapt, head kept").save(tmp_path / "one.fit", examples=False)
    assert "the variance of an output changes" in caplog.text
    assert 0 <= read_manifest(tmp_path / "one.fit").raw["without_examples"] < 1e-2


def test_no_room_for_directions_is_an_error_with_figures():
    posterior = fit("adapt, head kept").choice.best.posterior
    with pytest.raises(NotStorable, match="67 weights"):
        without_examples([posterior], 100, torch.float32)
