"""The library with the wheel alone installed, in a few seconds: `python packaging/smoke.py`.

README's lines (where scikit-learn is installed), a prior as a file, adapting, a trained network, a head, certificates, export,
and the command line on a table.
"""

import csv
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch

import posterity as pt


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def readme() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    first = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert first is not None
    exec(first[1], {})


def library(folder: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    data = x, x[:, :3].argmax(1)
    source = pt.learn(network(), data, training={"epochs": 2}, progress=False)
    source.posterior.save(folder / "source.safetensors")
    prior = pt.load(folder / "source.safetensors")
    fit = pt.adapt(network(), (x[:12], data[1][:12]), prior, head="keep", progress=False)
    predicted = fit.predict(x)
    assert (predicted.probs.sum(-1) - 1).abs().max() < 1e-5
    assert predicted.unknown is not None
    fit.save(folder / "a.fit")
    assert torch.equal(pt.load(folder / "a.fit", network()).predict(x).probs, predicted.probs)
    assert 0 < pt.metrics.score(predicted, data[1]).accuracy <= 1
    last = pt.posterior(source.model, data, blocks=["2"], progress=False)
    exported = torch.export.export(last.module(unknown=False), (x,), strict=False).module()(x)
    assert (exported[0] - last.predict(x).probs).abs().max() < 1e-4
    assert pt.head(x, data[1]).predict(x).probs.shape == (60, 3)
    certificate = pt.certify(source.model, source.posterior, pt.isotropic(network()), data, progress=False)
    assert 0 < certificate.bound <= 1


def command_line(folder: Path) -> None:
    with open(folder / "a.csv", "w", newline="") as file:
        rows = [[f"{a:.3f}", f"{b:.3f}", "left" if a < b else "right"] for a, b in torch.randn(40, 2).tolist()]
        csv.writer(file).writerows([["a", "b", "side"], *rows])
    run = [sys.executable, "-c", "from posterity.cli import app; app()"]
    for line in ("learn a.csv --target side --out side.fit --quiet", "predict side.fit a.csv --out b.csv --quiet"):
        subprocess.run([*run, *line.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    assert len((folder / "b.csv").read_text(encoding="utf-8").splitlines()) == 41


with tempfile.TemporaryDirectory() as place:
    if find_spec("sklearn"):
        readme()
    library(Path(place))
    command_line(Path(place))
print(f"posterity {pt.__version__} works with torch {torch.__version__}")
