"""A new wearer of a watch, images after other images, clothes from scratch, and regression: all methods on each."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from posterity.curvature import EKFAC, GaussianNoise, estimate
from posterity.gaussian import Gaussian
from posterity.laplace import isotropic, update
from posterity.workflow import learn
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets import Regression, per_class, uci
from posterity_studies.shared.networks import fresh, with_fast_pooling
from posterity_studies.shared.rivals import laplace_torch
from posterity_studies.shared.rivals.absent import RivalMissing
from posterity_studies.shared.rivals.training import (
    Budget,
    Pair,
    Parts,
    dropped,
    least,
    outputs,
    trained,
    with_dropout,
)
from posterity_studies.shared.sources import data_set
from posterity_studies.shared.watch import meet
from posterity_studies.studies.quality.methods import Problem, every_method

MEMBERS = 5
FOLDER = Path("runs/networks")
SAME_CLASSES = {("digits", "mnist"), ("mnist", "digits")}
"""Pairs whose heads mean the same: elsewhere everybody starts with a new head."""
PEAK = 3e-3
"""Of the learning rate where training starts from nothing."""
WATCH_TUNING, IMAGE_TUNING = Budget(200, 1e-3), Budget(100, 2e-3)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Measures by size of the task and method."""
    kinds = {"watch": _watch, "transfer": _transfer, "scratch": _scratch, "regression": _regression}
    return kinds[arguments["kind"]](arguments)


def _watch(arguments: Arguments) -> Values:
    """One wearer, whom the source has never seen, and one exercise that no one has."""
    meeting = meet(arguments["wearer"], arguments["unknown"])
    seed = 100 * arguments["wearer"] + arguments["unknown"]
    data = _flat(meeting.source(stride=25).pair)
    starts = [
        kept_network(
            f"watch-{meeting.wearer}-{meeting.unknown}",
            watch_network(len(meeting.classes), 1000 * m + seed),
            data,
            Budget(arguments["steps"], PEAK),
            1000 * m + seed,
        )
        for m in range(_needed(arguments))
    ]
    prior = handed_down(starts[0], _flat(meeting.source().pair), meeting.classes, seed)
    test, unknown = _flat(meeting.test().pair), _flat(meeting.unfamiliar().pair)[0]
    values: dict[str, Any] = {}
    for windows in arguments["sizes"]:
        task = _flat(meeting.shown(2.0 * windows).pair)
        problem = Problem(
            starts, task, test, unknown, WATCH_TUNING, seed, prior, meeting.classes, all_layers=arguments["all layers"]
        )
        values[str(windows)] = {"examples": len(task[0]), **every_method(problem, arguments["who"])}
    return values


def _transfer(arguments: Arguments) -> Values:
    """A few images of each class, after many of another set."""
    source, target, seed = arguments["source"], arguments["target"], arguments["seed"]
    # Seed s starts from source network s; the ensemble has all five, that one first.
    order = [(seed + m) % MEMBERS for m in range(MEMBERS)]
    images, names = _source_images(source, arguments["examples"]), [f"{source} {c}" for c in range(10)]
    networks = [
        kept_network(
            f"{source}-{arguments['examples']}",
            with_fast_pooling(fresh(member)),
            images,
            Budget(arguments["steps"], PEAK),
            member,
        )
        for member in order[: _needed(arguments)]
    ]
    same = (source, target) in SAME_CLASSES
    prior = handed_down(networks[0], images, tuple(names), seed)
    starts = networks if same else [_new_head(network, 10 * seed + m) for m, network in enumerate(networks)]
    classes = tuple(names) if same else tuple(f"{target} {c}" for c in range(10))
    values: dict[str, Any] = {}
    for shots in arguments["sizes"]:
        task, test = _few(target, shots, seed, arguments["tested"])
        unknown = _some("fashion_mnist", seed, arguments["tested"] // 2)
        problem = Problem(
            starts, task, test, unknown, IMAGE_TUNING, seed, prior, classes, new_head=not same, all_layers=False
        )
        values[str(shots)] = {"examples": len(task[0]), **every_method(problem, arguments["who"])}
    return values


def _scratch(arguments: Arguments) -> Values:
    """Clothes without any source; unknown inputs are digits."""
    seed, size = arguments["seed"], arguments["size"]
    data = data_set("fashion_mnist")
    generator = torch.Generator().manual_seed(1000 + seed)
    kept = torch.randperm(len(data.train[0]), generator=generator)[:size]
    tested = torch.randperm(len(data.test[0]), generator=generator)[: arguments["tested"]]
    problem = Problem(
        [with_fast_pooling(fresh(10 * seed + m)) for m in range(_needed(arguments))],
        (data.train[0][kept], data.train[1][kept]),
        (data.test[0][tested], data.test[1][tested]),
        _some("mnist", seed, arguments["tested"] // 2),
        Budget(arguments["steps"], PEAK),
        seed,
        all_layers=False,
    )
    return {str(size): {"examples": size, **every_method(problem, arguments["who"])}}


def watch_network(classes: int, seed: int) -> nn.Sequential:
    """Three convolutions over time. They are written in two dimensions, the only ones laplace-torch knows factors for."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for inp, out, width in ((6, 32, 7), (32, 48, 5), (48, 64, 5)):
            layers += [nn.Conv2d(inp, out, (1, width), stride=(1, 2), padding=(0, width // 2)), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes)]
    return nn.Sequential(*layers)


def _flat(data: Pair) -> Pair:
    """Signals as images one pixel high."""
    return data[0][:, :, None], data[1]


def handed_down(model: nn.Module, data: Pair, classes: tuple[str, ...], seed: int) -> Gaussian:
    """The prior that a trained network leaves: its weights, and their curvature on the source."""
    generator = torch.Generator().manual_seed(seed)
    curvature = estimate(model, data, EKFAC(), generator=generator, progress=False)
    found = update(model, curvature, isotropic(model, 1.0))
    return replace(found, card=replace(found.card, classes=classes))


def kept_network(name: str, model: nn.Sequential, data: Pair, budget: Budget, seed: int) -> nn.Sequential:
    """A network trained on a source: made once, then read from `runs/networks/`."""
    path = FOLDER / f"{name}-{budget.steps}-{seed}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two workers may want the same network: each writes a file of its own, and either will do.
        partial = path.with_suffix(f".{os.getpid()}")
        save_file(trained(model, data, budget, seed).state_dict(), partial)
        partial.replace(path)
    model.load_state_dict(load_file(path))
    return model.eval()


def _needed(arguments: Arguments) -> int:
    """We need one network, the ensemble five."""
    return 1 if arguments["who"] == "ours" else MEMBERS


def _source_images(source: str, examples: int) -> Pair:
    x, y = data_set(source).train
    kept = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:examples]
    return x[kept], y[kept]


def _new_head(model: nn.Sequential, seed: int) -> nn.Sequential:
    twin = copy.deepcopy(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        twin[-1].reset_parameters()  # type: ignore[operator]
    return twin


def _few(target: str, shots: int, seed: int, tested: int) -> tuple[Pair, Pair]:
    """Images to learn from, and the images to test on that all sizes of a seed share."""
    data = data_set(target)
    generator = torch.Generator().manual_seed(1000 + seed)
    test = torch.randperm(len(data.test[0]), generator=generator)[:tested]
    return per_class(data.train, shots, generator), (data.test[0][test], data.test[1][test])


def _some(name: str, seed: int, count: int) -> Tensor:
    x = data_set(name).test[0]
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(2000 + seed))[:count]]


DECAYS = (1e-4, 1e-3, 1e-2)
"""Weight decays beside a mean squared error, of which a held-out fifth chooses."""
DROPPED = (0.01, 0.05, 0.1)


def _regression(arguments: Arguments) -> Values:
    """One split of a UCI set: NLL in the target's units, a hidden layer of fifty units."""
    data = uci(arguments["data"], arguments["split"])
    methods = _our_regression if arguments["who"] == "ours" else _rival_regressions
    values: dict[str, Any] = {"examples": len(data.train[0])}
    y = data.test[1]
    begin = time.process_time()
    for name, answer in methods(data, arguments["split"], Budget(arguments["steps"], 1e-2)):
        if isinstance(answer, RivalMissing):
            values[name] = {"skipped": str(answer)}
            continue
        mean, variance, before = answer
        nll = 0.5 * ((mean - y).square() / variance + (2 * math.pi * variance).log()).mean()
        values[name] = {
            "nll": float(f"{float(nll) + math.log(data.scale):.5g}"),
            "rmse": float(f"{float((mean - y).square().mean().sqrt()) * data.scale:.5g}"),
            "seconds": round(time.process_time() - begin + before, 2),
        }
        begin = time.process_time()
    return {"all": values}


Normal = tuple[Tensor, Tensor, float]
"""Means, variances with noise, and the seconds spent before on what a method shares with others."""


def _our_regression(data: Regression, split: int, budget: Budget) -> Iterator[tuple[str, Normal]]:
    model = regression_network(data.train[0].shape[1], split)
    generator = torch.Generator().manual_seed(split)
    fit = learn(model, data.train, likelihood=GaussianNoise(), generator=generator, progress=False)
    found = fit.predict(data.test[0])
    yield "default", (found.mean, found.variance, 0.0)
    mean = outputs(model.eval(), data.test[0])
    noise = (outputs(model, data.train[0]) - data.train[1]).square().mean()
    yield "mode", (mean, noise.expand_as(mean), 0.0)


def _rival_regressions(data: Regression, split: int, budget: Budget) -> Iterator[tuple[str, Normal | RivalMissing]]:
    parts = Parts.of(data.train, split)
    x = data.test[0]

    def fit(which: Pair, decay: float, seed: int, rate: float = 0.0) -> nn.Module:
        model = regression_network(x.shape[1], seed)
        model = with_dropout(model, rate) if rate else model
        return trained(model, which, budget, seed, decay=decay, loss=nn.functional.mse_loss)

    begin = time.process_time()
    tried = {d: fit(parts.kept, d, split) for d in DECAYS}
    decay = least(DECAYS, lambda d: _mse(tried[d], parts.held))
    noise = _mse(tried[decay], parts.held)
    mode = fit(data.train, decay, split)
    shared = time.process_time() - begin
    mean = outputs(mode, x)
    yield "map", (mean, torch.full_like(mean, noise), 0.0)
    try:
        yield "laplace all", (*laplace_torch.regression(mode, data.train, x), shared)
    except RivalMissing as reason:
        yield "laplace all", reason
    members = [mode, *(fit(data.train, decay, 1000 * m + split) for m in range(1, MEMBERS))]
    draws = torch.stack([outputs(m, x) for m in members])
    yield "ensemble", (draws.mean(0), draws.var(0, correction=0) + noise, shared)
    with_rate = {r: fit(parts.kept, decay, split, r) for r in DROPPED}
    rate = least(DROPPED, lambda r: _spread_nll(with_rate[r], parts.held))
    noise = float((dropped(with_rate[rate], parts.held[0], 100).mean(0) - parts.held[1]).square().mean())
    draws = dropped(fit(data.train, decay, split, rate), x, 100)
    yield "dropout", (draws.mean(0), draws.var(0, correction=0) + max(noise, 1e-6), shared)


def regression_network(inputs: int, seed: int) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(inputs, 50), nn.ReLU(), nn.Linear(50, 1))


def _mse(model: nn.Module, data: Pair) -> float:
    return max(1e-6, float((outputs(model, data[0]) - data[1]).square().mean()))


def _spread_nll(model: nn.Module, data: Pair) -> float:
    draws = dropped(model, data[0], 100)
    error = (draws.mean(0) - data[1]).square()
    variance = draws.var(0, correction=0) + error.mean()
    return float((0.5 * (error / variance + variance.log())).mean())
