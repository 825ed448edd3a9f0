"""The learners, each with the settings that validation data may choose among."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from posterity.gaussian import Gaussian
from posterity.laplace import Scales, isotropic
from posterity.lenet import lenet5
from posterity.progressive import BPNN
from posterity_studies.shared.continual import EWC, PNN, FineTuning, JointNetwork, Learner, OnlineLaplace
from posterity_studies.shared.networks import fresh, with_fast_pooling
from posterity_studies.shared.priors import at_strength, build_prior, start_at

STRENGTHS: dict[str, list[tuple[float, float]]] = {
    "learned": [(0.01, 0.1), (0.1, 1.0)],
    "mean": [(0.0, 0.1), (0.0, 1.0)],
    "zero": [(0.0, 0.1), (0.0, 1.0)],
}
"""(a, γ): the prior's precision is a · (curvature on the source) + γ · identity. As many for each prior."""

TEMPERATURES = (1.0, 1e-2, 1e-4, 1e-6)
DECAYS = (1e-3, 1e-2, 1e-1)
RATES = (0.1, 0.4)
CONSOLIDATION = (1.0, 100.0, 1e4, 1e6)
PRECISIONS = (0.1, 1.0)
DRAWS = 10

NAMES = {
    "bpnn learned": "BPNN, learned prior",
    "bpnn mean": "BPNN, isotropic at the learned mean",
    "bpnn zero": "BPNN, isotropic at zero",
    **{f"pnn {decay:g}": f"PNN, weight decay {decay:g}" for decay in DECAYS},
    "dropout": "PNN, MC dropout",
    "fine-tuning": "fine-tuning",
    "ewc": "EWC",
    "online laplace": "online Laplace",
    "joint": "joint training (ceiling)",
    "alone": "each task alone (no laterals)",
}


SCALINGS: dict[str, Any] = {"one": Scales(), "mcallester": "mcallester", "catoni": "catoni", "loo": "loo"}
SCALED = {
    "scales one": "α = β = 1, τ by validation",
    "scales mcallester": "scales of least McAllester bound (Algorithm 2)",
    "scales catoni": "scales of least Catoni bound (Algorithm 2)",
    "scales loo": "τ by leave-one-out",
    "scales catoni alone": "Catoni's, without laterals",
}
"""Ways to choose a column's scales, all with one learned prior, which no data of the stream chose."""


INCREMENTAL = {
    "incremental bpnn learned": "BPNN, learned prior",
    "incremental bpnn mean": "BPNN, isotropic at the learned mean",
    "incremental pnn 0.01": "PNN, weight decay 0.01",
    "incremental prototypes": "Bayesian prototypes on the source's features",
}
"""Learners that are not given the task of a test image: columns answer by the one of least entropy."""


@dataclass(frozen=True)
class Method:
    """A learner, and what to try: for every task where each has a column, for the whole stream where all share a network."""

    learner: Learner
    settings: Sequence[tuple[str, Callable[[Any], None]]] = ()
    priors: Sequence[Gaussian] = ()
    """For BPNN, which tries priors instead."""


def small(name: str, learned: Gaussian, training: dict[str, Any], seed: int) -> Method:
    """A method on LeNet-5. All start at the learned mean, but for the prior around zero, which starts fresh."""
    model = with_fast_pooling(lenet5())
    start_at(model, learned)
    laterals, head = ["3", "7", "9"], "11"
    options: dict[str, Any] = {"training": training, "seed": seed}
    match name.split():
        case ["bpnn", kind]:
            priors = [build_prior(kind, learned, *s, seed).compress().without(head) for s in STRENGTHS[kind]]
            model = with_fast_pooling(fresh(seed)) if kind == "zero" else model
            # As many examples as these leave a bound nothing to choose by: the temperature is left to validation.
            learner = BPNN(
                model, priors[0], laterals, head, scales=Scales(), temperatures=TEMPERATURES, samples=DRAWS, **options
            )
            return Method(learner, priors=priors)
        case ["scales", how, *alone]:
            prior = at_strength(learned, *STRENGTHS["learned"][-1]).compress().without(head)
            temperatures = {"one": TEMPERATURES, "loo": None}.get(how, (1.0,))
            options |= {"scales": SCALINGS[how], "temperatures": temperatures, "samples": DRAWS}
            return Method(BPNN(model, prior, [] if alone else laterals, head, **options))
        case ["pnn", decay]:
            return Method(PNN(model, laterals, head, weight_decay=float(decay), **options))
        case ["alone"]:
            return Method(PNN(model, [], head, **options), [_set("weight_decay", d) for d in DECAYS[:2]])
        case ["dropout"]:
            dropping = with_dropout(model)
            plain = PNN(dropping, laterals, head, weight_decay=1e-2, dropout_draws=DRAWS, **options)
            return Method(plain, [(f"rate {p:g}", _rate(p)) for p in RATES])
        case ["fine-tuning"]:
            return Method(FineTuning(model, head, **options), [_set("precision", p) for p in PRECISIONS])
        case ["ewc"]:
            return Method(EWC(model, head, precision=0.1, **options), [_set("strength", s) for s in CONSOLIDATION])
        case ["online", "laplace"]:
            online = OnlineLaplace(model, head, precision=0.1, **options)
            return Method(online, [_set("strength", s) for s in CONSOLIDATION])
        case ["joint"]:
            return Method(JointNetwork(model, head, **options), [_set("precision", p) for p in PRECISIONS])
    raise ValueError(f"there is no method {name!r}")


def full(name: str, training: dict[str, Any], seed: int) -> Method:
    """A method on all of split MNIST with the network of VCL and S-FSVI: two hidden layers of 256, no other data."""
    model = _perceptron(seed)
    options: dict[str, Any] = {"training": training, "seed": seed}
    match name:
        case "bpnn zero":
            prior = isotropic(model, 1.0).without("5")
            learner: Learner = BPNN(
                model, prior, ["3"], "5", scales=Scales(), temperatures=TEMPERATURES, samples=DRAWS, **options
            )
        case "pnn":
            learner = PNN(model, ["3"], "5", weight_decay=1e-4, **options)
        case "ewc":
            return Method(EWC(model, "5", precision=1.0, **options), [_set("strength", s) for s in CONSOLIDATION])
        case "online laplace":
            return Method(
                OnlineLaplace(model, "5", precision=1.0, **options), [_set("strength", s) for s in (1.0, 10.0)]
            )
        case _:
            raise ValueError(f"there is no method {name!r}")
    return Method(learner)


def with_dropout(model: nn.Sequential) -> nn.Sequential:
    """Dropout behind the activations of the linear layers; the names of weighted layers stay as they are."""
    for index in (8, 10):
        model[index] = nn.Sequential(nn.ReLU(), nn.Dropout(0.1))
    return model


def _perceptron(seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(256, 2))


def _set(attribute: str, value: float) -> tuple[str, Callable[[Any], None]]:
    return f"{attribute} {value:g}", lambda learner: setattr(learner, attribute, value)


def _rate(p: float) -> Callable[[Any], None]:
    def put(learner: Any) -> None:
        for module in learner.architecture.template.modules():
            if isinstance(module, nn.Dropout):
                module.p = p

    return put
