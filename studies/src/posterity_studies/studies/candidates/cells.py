"""One task: ours by its default call, its candidates one by one, and every rival."""

from __future__ import annotations

import copy
import time
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from posterity.data.batches import input_batches
from posterity.gaussian import Gaussian
from posterity.idx import images
from posterity.predictive.predictor import Stack
from posterity.workflow import Fit, adapt, learn, posterior
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.cpu_networks import convolutions, mlp, normed, residual
from posterity_studies.shared.datasets.packed import pixels
from posterity_studies.shared.labelled import labelled
from posterity_studies.shared.rivals.training import Budget, Pair, outputs, temperature, trained
from posterity_studies.studies.candidates.methods import bagged, ensemble, fine_tuned, on_rows, plain, scored

TESTED = 1000
MADE_UP = "made-up"


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Measures by method."""
    kinds = {"after": _after, "post hoc": _post_hoc, "scratch": _scratch}
    return {"methods": kinds[arguments["kind"]](arguments, arguments["seed"])}


def ours(fit: Fit, test: Pair, began: float, name: str = "ours") -> dict[str, Any]:
    """The fit, and each part of its average by itself."""
    found: dict[str, Any] = {name: scored(fit.predict(test[0]).probs, test[1], began)}
    if isinstance(fit.predictor, Stack):
        found[name]["plan"] = fit.plan.reasons[-1]
        like = next(fit.model.parameters())
        inputs = input_batches(test[0], 250, like.device, like.dtype)
        for weight, part in fit.predictor.parts:
            if weight:
                with fit.replicas.one() as network:
                    probs = part.predict(network, inputs).probs
                found[f"{name}: {type(part).__name__}"] = scored(probs, test[1], time.process_time())
    return found


@cache
def halves(name: str) -> tuple[Pair, Pair]:
    """The first classes of a set with all their examples, and the others."""
    if name == "fashion_mnist":
        x, y = images(name).train
        x, y = x[:12000], y[:12000]
    else:
        rows = labelled(name)
        x, y = rows.x.float(), rows.y
        x = (x - x.mean(0)) / x.std(0).clamp_min(1e-6)
    cut = (int(y.max()) + 1) // 2
    return (x[y < cut], y[y < cut]), (x[y >= cut], y[y >= cut] - cut)


def network_for(name: str, x: Tensor, classes: int) -> nn.Sequential:
    return convolutions(classes) if name == "fashion_mnist" else mlp(x.shape[1], classes)


@cache
def source(name: str, seed: int) -> tuple[Gaussian, dict[str, Tensor]]:
    """A prior from half of the classes, and the network it is around."""
    (x, y), _ = halves(name)
    classes = int(y.max()) + 1
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = network_for(name, x, classes)
    generator = torch.Generator().manual_seed(seed)
    # Stated, so that a source costs the same whatever the default for its size is.
    options = (
        {"epochs": 6, "lr": 2e-3, "batch_size": 64} if len(x) > 2000 else {"epochs": 60, "lr": 2e-3, "batch_size": 64}
    )
    fit = learn(model, (x[:3000], y[:3000]), training=options, generator=generator, progress=False)
    return fit.posterior, copy.deepcopy(model.state_dict())


def _after(arguments: Arguments, seed: int) -> dict[str, Any]:
    name, shots = arguments["set"], arguments["shots"]
    prior, weights = source(name, seed)
    _, (x, y) = halves(name)
    classes = int(y.max()) + 1
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=generator)
    few = torch.cat([order[y[order] == c][:shots] for c in range(classes)])
    rest = torch.ones(len(y), dtype=torch.bool)
    for c in range(classes):
        rest[order[y[order] == c][:10]] = False
    test = x[rest][:TESTED], y[rest][:TESTED]
    if len(y) > TESTED:
        kept = torch.randperm(int(rest.sum()), generator=generator)[:TESTED]
        test = x[rest][kept], y[rest][kept]
    train = x[few], y[few]
    start = network_for(name, x, int(halves(name)[0][1].max()) + 1)
    start.load_state_dict(weights)
    body = list(start.children())[:-1]
    head = nn.Linear(list(prior.mean.values())[-1].shape[1] - 1, classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    start, below = nn.Sequential(*body, head), nn.Sequential(*body).eval()
    options: dict[str, Any] = {"head": "new", "progress": False, "generator": torch.Generator().manual_seed(seed)}
    began = time.process_time()
    found = ours(learn(copy.deepcopy(start), train, prior, **options), test, began)
    began = time.process_time()
    found |= ours(adapt(copy.deepcopy(start), train, prior, **options), test, began, "adapt")
    with torch.no_grad():
        rows = [torch.cat([below(part) for part in rows.split(500)]) for rows in (train[0], test[0])]
    found |= on_rows((rows[0], train[1]), (rows[1], test[1]))
    found["fine-tuning"] = fine_tuned(start, train, test, seed)
    return found


def _post_hoc(arguments: Arguments, seed: int) -> dict[str, Any]:
    x, y, new = _images(arguments["set"], seed)
    n, held = arguments["examples"], arguments["held"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        untrained = _network(arguments["network"], x)
    train, validation = (x[:n], y[:n]), (x[n : n + held], y[n : n + held])
    model = trained(untrained, train, Budget(arguments["steps"], 3e-3), seed)
    began = time.process_time()
    fit = posterior(model, train, validation=validation, progress=False, generator=torch.Generator().manual_seed(seed))
    taken = time.process_time() - began
    found = ours(fit, new, time.process_time())
    found["ours"]["fit seconds"] = round(taken, 3)
    began = time.process_time()
    soft = temperature(outputs(model, validation[0]), validation[1])
    found["temperature scaling"] = scored((outputs(model, new[0]) / soft).softmax(-1), new[1], began)
    found["network as it is"] = scored(outputs(model, new[0]).softmax(-1), new[1], time.process_time())
    return found


def _scratch(arguments: Arguments, seed: int) -> dict[str, Any]:
    x, y, test = _images(arguments["set"], seed)
    n = arguments["examples"]
    train = x[:n], y[:n]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _network(arguments["network"], x)
    began = time.process_time()
    fit = learn(copy.deepcopy(model), train, progress=False, generator=torch.Generator().manual_seed(seed))
    found = ours(fit, test, began)
    budget = Budget(arguments["steps"], 3e-3)
    found["plain training"] = plain(model, train, test, budget, seed)
    if arguments["few"]:
        found["bagged dropout"] = bagged(model, train, test, budget, seed)
        found["ensemble of 5"] = ensemble(model, train, test, budget, seed)
        found |= {f"pixels: {k}": v for k, v in on_rows((train[0].flatten(1), train[1]), (test[0].flatten(1), test[1])).items()
                  if k.startswith("logistic")}  # fmt: skip
    return found


def _images(name: str, seed: int) -> tuple[Tensor, Tensor, Pair]:
    """Training images in an order of the seed's own, and test images."""
    found = pixels("cifar10") if name == "cifar10" else images(name)
    (x, y), (new, answers) = found.train, found.test
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    return x[order], y[order], (new[:TESTED], answers[:TESTED])


def _network(name: str, x: Tensor) -> nn.Sequential:
    made: dict[str, Any] = {"convolutions": convolutions, "normed": normed, "residual": residual}
    network: nn.Sequential = made[name](10)
    return network
