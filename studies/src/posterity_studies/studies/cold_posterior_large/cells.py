"""One prior on one seed's pictures: the mode and predictives around it over temperatures, or the posterior in function space."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posterity as pt
from posterity.blocks import named
from posterity.curvature import estimate
from posterity.laplace import train, update
from posterity.progressive.training import prior_adam
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.columns import imagenet_columns
from posterity_studies.shared.flatness import flatness
from posterity_studies.shared.function_space import AT_ONCE, LEARNED, function_space, predicted
from posterity_studies.shared.last_stage import HEAD, imagenet, last_stage_kfoc, made_up
from posterity_studies.shared.picture_streams import of_set
from posterity_studies.shared.resnet import imagenet_resnet50
from posterity_studies.shared.rivals.training import Pair, nll
from posterity_studies.shared.shots import MADE_UP, drawn_maps
from posterity_studies.shared.softmax_regression import Span, fit
from posterity_studies.shared.tempering import accuracy
from posterity_studies.studies.cold_posterior_large.methods import SHARES, prior_of, tempered

SET = "cifar10"
BATCH = 50
"""Pictures a step of training."""
EACH = 25
"""Pictures a batch of the curvature's estimate."""


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Accuracy in per cent and NLL: of the mode, and by γ, way and temperature; or of both predictives in function space."""
    model, learned = _start(arguments)
    train_set, test = _pictures(arguments)
    if arguments["who"] == "mode":
        return _at_a_flat_mode(model, learned, train_set, test, arguments)
    if arguments["who"] == "function space":
        return _in_function_space(model, learned, train_set, test, SHARES[arguments["prior"]] * LEARNED)
    return _around_the_mode(model, learned, train_set, test, arguments, generator)


def _start(arguments: Arguments) -> tuple[nn.Module, pt.Gaussian]:
    """A network at its source's weights with a new head, and what the source left over the layers."""
    classes = arguments["classes"]
    if arguments["network"] == "whole":
        return imagenet_resnet50(classes), imagenet_columns().prior
    source = made_up() if arguments["network"] == MADE_UP else (last_stage_kfoc if "batch" in arguments else imagenet)()
    return source.network(classes), source.prior


def _pictures(arguments: Arguments) -> tuple[Pair, Pair]:
    """What a seed trains with and is tested by."""
    wanted = {name: arguments[name] for name in ("seed", "size", "classes", "shots", "tested")}
    if arguments["network"] == MADE_UP:
        shots = drawn_maps(MADE_UP, f"{MADE_UP} unknown", **wanted, strangers=1)
        return shots.train, shots.test
    task = of_set(SET, **wanted, held=0, maps=arguments["network"] == "last stage")
    return task.train, task.test  # type: ignore[return-value]


def _in_function_space(
    model: nn.Module, learned: pt.Gaussian, train_set: Pair, test: Pair, share: float
) -> dict[str, Any]:
    """The predictive with its leave-one-out scales, and with the covariance as it is, at τ = 1."""
    space = function_space(model, learned, train_set, share)
    best = space.choice.best
    assert best.posterior.strength is not None
    chosen = {"tau": best.calibration.tau, "temperature": best.calibration.temperature}
    chosen |= {"floor": best.posterior.strength.floor, "head": best.posterior.strength.head}
    found = {
        name: predicted(space, model, test[0], calibrated=name == "calibrated") for name in ("calibrated", "plain")
    }
    return {name: measures(one.probs, test[1]) for name, one in found.items()} | {"chosen": chosen}


def _around_the_mode(
    model: nn.Module,
    learned: pt.Gaussian,
    train_set: Pair,
    test: Pair,
    arguments: Arguments,
    generator: torch.Generator,
) -> dict[str, Any]:
    kind, (x, y) = arguments["prior"], test
    values: dict[str, Any] = {"training": _to_the_mode(model, learned, train_set, arguments)}
    values["mode"] = measures(_outputs(model, x).double().softmax(-1), y)
    # In eigenvectors that are there already, the same for both priors: nothing is decomposed again.
    first = prior_of(kind, learned, model, arguments["gammas"][0])
    options: dict[str, Any] = {"blocks": named(first.mean), "batch_size": EACH, "progress": False}
    curvature = estimate(model, train_set, pt.curvature.GivenFrame.of(first), generator=generator, **options)
    for gamma in arguments["gammas"]:
        posterior = update(model, curvature, prior_of(kind, learned, model, gamma))
        found = tempered(model, posterior, x, arguments["taus"], arguments["draws"], generator)
        values[f"{gamma:g}"] = {
            way: {f"{tau:g}": measures(probs, y) for tau, probs in curve.items()} for way, curve in found.items()
        }
    return values


def _at_a_flat_mode(
    model: nn.Module, learned: pt.Gaussian, train_set: Pair, test: Pair, arguments: Arguments
) -> dict[str, Any]:
    """The mode alone, with the paper's rate and batches, trained until its objective is flat; the head begins at zero."""
    prior = prior_of(arguments["prior"], learned, model, arguments["gammas"][0])
    history = train(
        model, train_set, prior, validation=None, start="model", epochs=arguments["epochs"], stop_after=arguments["epochs"],
        halve_after=2, batch_size=arguments["batch"], prior_every=8, progress=False,
        optimiser=lambda p: torch.optim.Adam(p, arguments["lr"], fused=True),
        generator=torch.Generator().manual_seed(arguments["seed"]),
    )  # fmt: skip
    model.eval()
    found = measures(_outputs(model, test[0]).double().softmax(-1), test[1])
    return {"mode": found, "training": flatness(history, len(train_set[1])), "tested": len(test[1])}


def _to_the_mode(model: nn.Module, learned: pt.Gaussian, train_set: Pair, arguments: Arguments) -> dict[str, float]:
    """Train all weights, beginning with a head that fits the features as they are; the objective before and after.

    With the least γ: beside the pull of the pictures, neither γ can be distinguished from zero.
    """
    prior = prior_of(arguments["prior"], learned, model, min(arguments["gammas"]))
    _fit_head(model, train_set)
    before = _objective(model, prior, train_set)
    options = {"epochs": arguments["epochs"], "stop_after": arguments["epochs"], "halve_after": 2, "batch_size": BATCH}
    train(
        model, train_set, prior, validation=None, start="model", optimiser=prior_adam(model, prior, arguments["lr"]),
        generator=torch.Generator().manual_seed(arguments["seed"]), progress=False, **options,
    )  # fmt: skip
    after = _objective(model, prior, train_set)
    return {"objective before": sum(before), "objective": sum(after), "nll": after[0]}


@torch.no_grad()
def _fit_head(model: nn.Module, train_set: Pair) -> None:
    """The head's own mode under a unit Gaussian, with the layers below as they are."""
    head = model.get_submodule(HEAD)
    assert isinstance(head, nn.Linear)
    seen: list[Tensor] = []
    watch = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    _outputs(model, train_set[0])
    watch.remove()
    span = Span.of(torch.cat(seen))
    with torch.enable_grad():
        weights = span.basis @ fit(span.rows, span.lengths, train_set[1], head.out_features, 1.0)
    head.weight.copy_(weights[:-1].mT)
    head.bias.copy_(weights[-1])


def _objective(model: nn.Module, prior: pt.Gaussian, train_set: Pair) -> tuple[float, float]:
    """NLL and the prior's penalty, in nats an example."""
    loss = F.cross_entropy(_outputs(model, train_set[0]), train_set[1])
    return float(f"{loss:.4g}"), float(f"{pt.laplace.PriorPenalty(prior, model)().detach() / len(train_set[1]):.4g}")


def measures(probs: Tensor, y: Tensor) -> dict[str, float]:
    """Rounded to what they are worth. Where a drawn network overflows, its prediction is a guess."""
    probs = probs.nan_to_num(1 / probs.shape[-1])
    return {"accuracy": accuracy(probs, y), "nll": float(f"{nll(probs, y):.4g}")}


@torch.no_grad()
def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part) for part in x.split(AT_ONCE)])
