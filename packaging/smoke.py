"""Fit, predict, save, load and certify in a few seconds, with the wheel alone installed: `python packaging/smoke.py`."""

import tempfile
from pathlib import Path

import torch

import posterity as pt


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


torch.manual_seed(0)
x = torch.randn(60, 4)
data = x, x[:, :3].argmax(1)
source = pt.learn(network(), data, training={"epochs": 2}, progress=False)
fit = pt.adapt(network(), (x[:12], data[1][:12]), source.posterior, head="keep", progress=False)
probs = fit.predict(x).probs
assert (probs.sum(-1) - 1).abs().max() < 1e-5
with tempfile.TemporaryDirectory() as folder:
    fit.save(Path(folder) / "a.fit")
    assert torch.equal(pt.load(Path(folder) / "a.fit", network()).predict(x).probs, probs)
prior = pt.isotropic(network())
certificate = pt.certify(source.model, source.posterior, prior, data, progress=False)
assert 0 < certificate.bound <= 1
print(f"posterity {pt.__version__} works with torch {torch.__version__}")
