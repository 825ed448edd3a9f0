"""Every outcome of the verbs that make a fit, on small problems: what they predict, their posterior and what it has seen.

`python tests/workflow/outcomes.py write` records them in recorded.json, `... check` names those that have changed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import posterity as pt

RECORDED = Path(__file__).with_name("recorded.json")
SEEDS = (0, 1)
QUICK: dict[str, Any] = {"training": {"epochs": 4}, "progress": False}
NAMES = ["a", "b", "c"]


def points(seed: int, n: int = 24, classes: int = 3, inputs: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, inputs, generator=generator)
    y = torch.cdist(x, torch.randn(classes, inputs, generator=torch.Generator().manual_seed(99))).argmin(1)
    y[:classes] = torch.arange(classes)
    return x, y


def numbers(seed: int, n: int = 24) -> tuple[Tensor, Tensor]:
    x, _ = points(seed, n)
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(seed + 7))
    return x, x[:, :1].sin() + 0.5 * x[:, 1:2] + 0.1 * noise


def network(seed: int, outputs: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


def conv(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)
    )


def trained(seed: int, outputs: int = 3) -> nn.Module:
    model = network(seed, outputs)
    data = points(seed) if outputs == 3 else numbers(seed)
    likelihood = pt.Categorical() if outputs == 3 else pt.GaussianNoise()
    pt.train(
        model,
        data,
        pt.isotropic(model, 0.1),
        likelihood,
        epochs=30,
        lr=0.02,
        progress=False,
        generator=torch.Generator().manual_seed(0),
    )
    return model


def source(seed: int, build: Callable[[int], nn.Module] = network) -> pt.Gaussian:
    generator = torch.Generator().manual_seed(seed)
    return pt.learn(build(seed), points(50 + seed, 200), classes=NAMES, generator=generator, **QUICK).posterior


def regression_source(seed: int) -> pt.Gaussian:
    generator = torch.Generator().manual_seed(seed)
    return pt.learn(
        network(seed, 1), numbers(50 + seed, 200), likelihood=pt.GaussianNoise(), generator=generator, **QUICK
    ).posterior


def learn(seed: int, data: Any = None, model: nn.Module | None = None, **options: Any) -> pt.Fit:
    options = {"progress": False, "generator": torch.Generator().manual_seed(seed)} | options
    return pt.learn(model or network(seed), data or points(seed), **options)


def adapt(seed: int, data: Any = None, **options: Any) -> pt.Fit:
    options = {"progress": False, "generator": torch.Generator().manual_seed(seed)} | options
    return pt.adapt(network(seed), data or points(seed), source(seed), **options)


def posterior(seed: int, outputs: int = 3, **options: Any) -> pt.Fit:
    data = points(seed) if outputs == 3 else numbers(seed)
    options = {"progress": False, "generator": torch.Generator().manual_seed(seed)} | options
    if outputs == 1:
        options["likelihood"] = pt.GaussianNoise()
    return pt.posterior(trained(seed, outputs), data, **options)


def column(seed: int, **options: Any) -> pt.BPNN:
    bpnn = pt.BPNN(network(seed), prior=source(seed), laterals=["0"], training={"epochs": 3}, seed=seed, **options)
    for k in range(2):
        data = points(seed + 20 * k), points(seed + 20 * k + 1), points(seed + 20 * k + 2)
        bpnn.learn(pt.Task(f"task {k}", *data, classes=3), progress=False)
    return bpnn


def yes_or_no(seed: int) -> tuple[Tensor, Tensor]:
    x, y = points(seed)
    return x, nn.functional.one_hot(y, 3).float()


GROUPS = torch.arange(24) // 3
OUTCOMES: dict[str, Callable[[int], Any]] = {
    "learn, prior, new head": lambda s: learn(s, prior=source(s)),
    "learn, prior, head kept": lambda s: learn(s, prior=source(s), classes=NAMES),
    "learn, prior, convolutions": lambda s: learn(s, model=conv(s), prior=source(s, conv), head="keep"),
    "learn, prior, groups": lambda s: learn(s, prior=source(s), classes=NAMES, groups=GROUPS),
    "learn, prior, elbo": lambda s: learn(s, points(s, 9), prior=source(s), head="keep", scales="elbo"),
    "learn, prior, evidence": lambda s: learn(s, prior=source(s), scales="evidence"),
    "learn, prior, bayes": lambda s: learn(s, prior=source(s), classes=NAMES, scales="bayes", **QUICK),
    "learn, prior, trained as told": lambda s: learn(s, prior=source(s), training={"epochs": 3}),
    "learn, prior, one a class": lambda s: learn(s, points(s, 3), prior=source(s)),
    "learn, prior, two a class": lambda s: learn(s, (points(s)[0][:6], torch.arange(6) % 3), prior=source(s)),
    "learn, prior, regression": lambda s: learn(
        s, numbers(s), network(s, 1), prior=regression_source(s), likelihood=pt.GaussianNoise()
    ),
    "learn, prior, many": lambda s: learn(s, points(s, 1600), prior=source(s), **QUICK),
    "learn, prior, catoni": lambda s: learn(s, prior=source(s), scales="catoni", **QUICK),
    "learn, classes": lambda s: learn(s),
    "learn, classes, groups": lambda s: learn(s, groups=GROUPS),
    "learn, classes, one a class": lambda s: learn(s, points(s, 3)),
    "learn, classes, trained as told": lambda s: learn(s, **QUICK),
    "learn, classes, pairwise": lambda s: learn(s, link="pairwise", **QUICK),
    "learn, classes, many": lambda s: learn(s, points(s, 1600), **QUICK),
    "learn, classes, validation": lambda s: learn(s, validation=0.2, **QUICK),
    "learn, classes, catoni": lambda s: learn(s, scales="catoni", **QUICK),
    "learn, classes, mcallester": lambda s: learn(s, scales="mcallester", **QUICK),
    "learn, classes, scales": lambda s: learn(s, scales=pt.Scales(1.0, 0.5, 0.1), **QUICK),
    "learn, classes, trained network": lambda s: learn(s, model=trained(s), **QUICK),
    "learn, yes or no": lambda s: learn(s, yes_or_no(s), likelihood=pt.Bernoulli()),
    "learn, isotropic prior": lambda s: learn(s, prior=pt.isotropic(network(s), 2.0), **QUICK),
    "learn, regression": lambda s: learn(s, numbers(s), network(s, 1), likelihood=pt.GaussianNoise()),
    "learn, regression, groups": lambda s: learn(
        s, numbers(s), network(s, 1), likelihood=pt.GaussianNoise(), groups=GROUPS
    ),
    "learn, regression, many": lambda s: learn(s, numbers(s, 3100), network(s, 1), likelihood=pt.GaussianNoise()),
    "learn, regression, trained as told": lambda s: learn(
        s, numbers(s), network(s, 1), likelihood=pt.GaussianNoise(), **QUICK
    ),
    "adapt, new head": lambda s: adapt(s),
    "adapt, head kept": lambda s: adapt(s, head="keep"),
    "adapt, isotropic": lambda s: adapt(s, shares=(0.0,)),
    "adapt, polish": lambda s: adapt(s, polish=True),
    "adapt, variational": lambda s: adapt(s, points(s, 9), head="keep", inference=pt.kernel.VariationalGaussian()),
    "adapt, groups": lambda s: adapt(s, groups=GROUPS),
    "posterior": lambda s: posterior(s),
    "posterior, validation": lambda s: posterior(s, validation=points(s + 5)),
    "posterior, precision": lambda s: posterior(s, precision=1.0),
    "posterior, regression": lambda s: posterior(s, 1),
    "posterior, last layer": lambda s: posterior(s, blocks=["2"]),
    "posterior, last layer, validation": lambda s: posterior(s, blocks=["2"], validation=points(s + 5)),
    "posterior, last layer, groups": lambda s: posterior(s, blocks=["2"], groups=GROUPS),
    "posterior, last layer, regression": lambda s: posterior(s, 1, blocks=["2"]),
    "posterior, last layer, estimator": lambda s: posterior(s, blocks=["2"], estimator=pt.KFAC()),
    "columns": lambda s: column(s),
    "columns, catoni": lambda s: column(s, scales="catoni", temperatures=(1.0, 0.1)),
}


def record(outcome: Any, seed: int) -> dict[str, Any]:
    """What one outcome says of new inputs, and digests of all that it holds."""
    x = points(1000 + seed, 8)[0]
    generator = torch.Generator().manual_seed(0)
    if isinstance(outcome, pt.BPNN):
        found = outcome.predict(x, task="task 1", generator=generator)
        gaussian, weights = outcome.posterior("task 1"), outcome.network("task 1").state_dict()
    else:
        found = outcome.predict(x, generator=generator)
        gaussian, weights = outcome.posterior, outcome.model.state_dict()
    return {
        "mean": found.mean.double().flatten().tolist(),
        "epistemic": found.epistemic.double().flatten().tolist(),
        "posterior": gaussian.fingerprint(),
        "seen": gaussian.provenance.fingerprint,
        "choices": [[c.what, c.options] for c in gaussian.provenance.choices],
        "weights": hashlib.sha256(b"".join(v.numpy().tobytes() for v in weights.values())).hexdigest(),
    }


def all_records() -> dict[str, dict[str, Any]]:
    torch.set_num_threads(1)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in OUTCOMES.items():
            for seed in SEEDS:
                began = time.process_time()
                found[f"{name} ({seed})"] = record(make(seed), seed)
                print(f"{time.process_time() - began:6.2f} s  {name} ({seed})", file=sys.stderr)
    return found


def machine() -> str:
    """Bits are the same on processors of one model: libraries of linear algebra choose their kernels by it."""
    flags = torch.__config__.show().split("CPU capability usage: ")
    kinds = ("vendor_id", "cpu family", "model")
    about = Path("/proc/cpuinfo")
    lines = [line.split(":") for line in about.read_text().splitlines() if ":" in line] if about.exists() else []
    found = {name.strip(): value.strip() for name, value in reversed([line[:2] for line in lines])}
    processor = " ".join(found.get(kind, "") for kind in kinds)
    capability = flags[1].split()[0] if len(flags) > 1 else ""
    return f"{platform.machine()} {processor} {capability} torch {torch.__version__}"


if __name__ == "__main__":
    records = all_records()
    if sys.argv[1] == "write":
        RECORDED.write_text(json.dumps({"machine": machine(), "outcomes": records}, indent=0) + "\n")
    else:
        known = json.loads(RECORDED.read_text())["outcomes"]
        for name in sorted(known.keys() | records.keys()):
            if known.get(name) != records.get(name):
                parts = (
                    "missing"
                    if name not in known or name not in records
                    else [k for k in known[name] if known[name][k] != records[name].get(k)]
                )
                print(name, parts)
