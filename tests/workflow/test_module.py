"""`Fit.module()`: one plain network that says what the fit says, here, exported by torch, and in ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from served import KINDS, X, blank, fit

import posterity as pt
from posterity.errors import NotExportable

FORWARD_ONLY = ("posterior, last layer", "posterior, last layer, regression", "posterior, last layer, groups")
BACKWARD = ("learn, prior, new head", "posterior", "adapt, head kept", "learn, classes")
TOLERANCE = 2e-6
"""Float32 probabilities and scores of order one."""


def averaged() -> pt.Fit:
    """The trained networks of a fit without the Gaussian that scores unknown inputs beside them."""
    of = fit("learn, prior, new head")
    return replace(of, predictor=of.predictor.parts[1][1])


def made(kind: str) -> pt.Fit:
    return averaged() if kind == "averaged networks" else fit(kind)


def expected(of: pt.Fit, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found = of.predict(x)
    if isinstance(of.likelihood, pt.GaussianNoise):
        return found.mean, found.variance, found.unknown
    return found.probs, found.unknown


def assert_close(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", [*FORWARD_ONLY, "averaged networks"])
def test_the_module_says_what_the_fit_says(kind):
    of = made(kind)
    module = of.module()
    assert_close(module(X), expected(of, X))
    assert not any(p.requires_grad for p in module.parameters())


@pytest.mark.parametrize("kind", [*FORWARD_ONLY, "averaged networks"])
def test_torch_exports_the_module_for_any_number_of_inputs(kind):
    of = made(kind)
    program = torch.export.export(of.module(), (X,), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),))
    for n in (1, 3, len(X)):
        assert_close(program.module()(X[:n]), expected(of, X[:n]))


@pytest.mark.parametrize("kind", [*FORWARD_ONLY, "averaged networks"])
def test_onnx_runtime_says_what_the_fit_says(kind, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    of, path = made(kind), tmp_path / "one.onnx"
    torch.onnx.export(of.module(), (X,), path, dynamo=True, dynamic_shapes=(({0: "n"},),), verbose=False)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for n in (1, len(X)):
        found = session.run(None, {session.get_inputs()[0].name: X[:n].numpy()})
        assert_close(found, expected(of, X[:n]))


@pytest.mark.parametrize("kind", FORWARD_ONLY)
def test_a_fit_that_was_saved_without_examples_has_the_same_module(kind, tmp_path):
    of = fit(kind)
    of.save(tmp_path / "one.fit", examples=False)
    found = pt.load(tmp_path / "one.fit", blank(kind)).module()(X)
    for one, other in zip(found, expected(of, X), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_networks_from_scratch_are_exported_without_the_score_that_takes_gradients():
    of = fit("learn, classes")
    (probs,) = of.module(unknown=False)(X)
    torch.testing.assert_close(probs, of.predict(X).probs, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", BACKWARD)
def test_posteriors_over_all_layers_say_what_to_do_instead(kind):
    assert kind in KINDS
    with pytest.raises(NotExportable, match=r"last layer|unknown=False"):
        fit(kind).module()
