"""`Fit.module()`: one plain network that says what the fit says, here, exported by torch, and in ONNX Runtime."""

from __future__ import annotations

import pytest
import torch
from served import KINDS, X, blank, fit

import posterity as pt
from posterity.errors import Memorisation, NotExportable

LAST_LAYERS = ("posterior, last layer", "posterior, last layer, regression", "posterior, last layer, groups")
FORWARD_ONLY = (*LAST_LAYERS, "learn, classes")
BACKWARD = ("learn, prior, new head", "posterior", "adapt, head kept")
TOLERANCE = 2e-6
"""Float32 probabilities and scores of order one."""


def expected(of: pt.Fit, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found = of.predict(x)
    if isinstance(of.likelihood, pt.GaussianNoise):
        return found.mean, found.variance, found.unknown
    return found.probs, found.unknown


def assert_close(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", FORWARD_ONLY)
def test_the_module_says_what_the_fit_says(kind):
    of = fit(kind)
    module = of.module()
    assert_close(module(X), expected(of, X))
    assert not any(p.requires_grad for p in module.parameters())


@pytest.mark.parametrize("kind", FORWARD_ONLY)
def test_torch_exports_the_module_for_any_number_of_inputs(kind):
    of = fit(kind)
    program = torch.export.export(of.module(), (X,), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),))
    for n in (1, 3, len(X)):
        assert_close(program.module()(X[:n]), expected(of, X[:n]))


@pytest.mark.parametrize("kind", FORWARD_ONLY)
def test_onnx_runtime_says_what_the_fit_says(kind, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    of, path = fit(kind), tmp_path / "one.onnx"
    torch.onnx.export(of.module(), (X,), path, dynamo=True, dynamic_shapes=(({0: "n"},),), verbose=False)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for n in (1, len(X)):
        found = session.run(None, {session.get_inputs()[0].name: X[:n].numpy()})
        assert_close(found, expected(of, X[:n]))


@pytest.mark.parametrize("kind", FORWARD_ONLY)
def test_a_fit_that_was_saved_without_examples_has_the_same_module(kind, tmp_path):
    of = fit(kind)
    of.save(tmp_path / "one.fit", examples=False)
    again = pt.load(tmp_path / "one.fit", blank(kind))
    for one, other in zip(again.module()(X), expected(again, X), strict=False):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for one, other in zip(again.module(unknown=False)(X), expected(of, X), strict=False):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_the_score_for_unknown_inputs_can_be_left_out():
    of = fit("learn, classes")
    (probs,) = of.module(unknown=False)(X)
    torch.testing.assert_close(probs, of.predict(X).probs, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", BACKWARD)
def test_posteriors_over_all_layers_say_what_to_do_instead(kind):
    assert kind in KINDS
    with pytest.raises(NotExportable, match=r"last layer|unknown=False"):
        fit(kind).module()


def test_a_memorised_last_layer_is_sent_to_validation_data():
    torch.manual_seed(0)
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    network = torch.nn.Sequential(torch.nn.Linear(4, 200), torch.nn.Tanh(), torch.nn.Linear(200, 3))
    optimiser = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(100):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    with pytest.warns(Memorisation):
        last = pt.posterior(network, (x, y), blocks=["2"], progress=False)
    with pytest.raises(NotExportable, match="validation=others"):
        last.module()
    assert pt.posterior(network, (x, y), blocks=["2"], validation=(x[:9], y[:9]), progress=False).module() is not None
