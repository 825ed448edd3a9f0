"""Posteriors over outputs as plain values and tensors, and back: what a file of a fit holds of them.

Nothing is computed again but the gradients at the training examples, in the same batches as before: predictions are the same to
the last bit. Kernel matrices of the training examples are left out, since no prediction needs them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from posterity.curvature import Bernoulli, Categorical, GaussianNoise, Likelihood
from posterity.errors import DamagedFile, NotStorable
from posterity.gaussian.container import packed, unpacked
from posterity.kernel.directions import DirectionJacobian, Directions, DirectionsLatent, holds_examples
from posterity.kernel.gradients import Rows
from posterity.kernel.jacobian import BlockFrame, Jacobian
from posterity.kernel.kernels import Kernel, OutputKernel, SharedKernel, Strength
from posterity.kernel.last_layer import WeightKernel, WeightsLatent
from posterity.kernel.latent import LINKS, CoupledLatent, Latent, Link, SharedLatent
from posterity.kernel.left_out import Calibration
from posterity.kernel.linearised import (
    FunctionPosterior,
    LinearisedNetwork,
    NetworkCentred,
    StrengthChoice,
    StrengthMember,
)
from posterity.kernel.variational import VariationalLatent, VariationalPosterior

Plain = dict[str, Any]
"""Numbers, texts, lists and mappings of them: what JSON has."""
Stored = tuple[Plain, dict[str, Tensor]]

KERNELS: dict[str, type[Kernel]] = {"per output": OutputKernel, "shared": SharedKernel, "in weights": WeightKernel}
LATENTS: dict[str, type[Latent]] = {
    "coupled": CoupledLatent,
    "shared": SharedLatent,
    "weights": WeightsLatent,
    "variational": VariationalLatent,
    "directions": DirectionsLatent,
}
POSTERIORS: dict[str, type[FunctionPosterior]] = {
    "linearised": FunctionPosterior,
    "around the network": NetworkCentred,
    "variational": VariationalPosterior,
}
LIKELIHOODS: dict[str, type[Likelihood]] = {
    "categorical": Categorical,
    "gaussian noise": GaussianNoise,
    "bernoulli": Bernoulli,
}
LARGEST = 1e30
"""Of a width or temperature; the grids end long before."""
TRIANGLES = ("lower", "coupling")
"""Cholesky factors, stored by half."""


def below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries that `above` wrote."""
    return {name[len(prefix) + 1 :]: x for name, x in tensors.items() if name.startswith(f"{prefix}/")}


def above(prefix: object, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by names that begin with what they are a part of."""
    return {f"{prefix}/{name}": x for name, x in tensors.items()}


def plain_likelihood(likelihood: Likelihood) -> Plain:
    """What outputs mean, as plain values."""
    own = ("precision", "per_input") if isinstance(likelihood, GaussianNoise) else ()
    return {"kind": _name(LIKELIHOODS, likelihood), **{name: getattr(likelihood, name) for name in own}}


def likelihood_of(plain: Plain) -> Likelihood:
    kind = LIKELIHOODS[plain["kind"]]
    return GaussianNoise(plain["precision"], bool(plain["per_input"])) if kind is GaussianNoise else kind()


def link_of(plain: Plain) -> Link:
    if plain["link"] not in LINKS:
        raise DamagedFile(f"no link is called {plain['link']!r}.")
    found: Link = plain["link"]
    return found


def numbers_of(calibration: Calibration) -> list[Any]:
    return [_safe(calibration.tau), _safe(calibration.temperature)]


def calibration_of(numbers: Sequence[Any]) -> Calibration:
    found = Calibration(*map(float, numbers[:2]))  # older files have a third, which scored unknown inputs
    if not (0 <= found.tau < LARGEST and 1 / LARGEST < found.temperature < LARGEST):
        raise DamagedFile(f"a width of {found.tau} and a temperature of {found.temperature} are none.")
    return found


def pack_choice(choice: StrengthChoice) -> Stored:
    """An average of posteriors, without their training examples; directions in the place of these are part of it."""
    of = choice.best.posterior.of
    plain: Plain = {
        "kernel": [_name(KERNELS, of.kernel), getattr(of.kernel, "head", "")],
        "classes": of.classes,
        "has_shift": of.shift is not None,
        "members": [],
        "choice": [choice.options, choice.criterion, choice.strengths],
        "for_mode": _strength_numbers(choice.for_mode),
    }
    tensors = above("shift", of.shift or {}) | {"targets": of.targets}
    if not holds_examples(choice.best.posterior):
        trains = {id(m.posterior.of): m.posterior.of.train for m in choice.members}
        plain["directions"] = [list(trains).index(id(m.posterior.of)) for m in choice.members]
        for i, train in enumerate(trains.values()):
            for name, block in train.blocks.items():
                kind, x = ("features", block.a) if isinstance(block, Rows) else ("along", block.d)  # type: ignore[union-attr]
                tensors[f"train/{i}/{kind}/{name}"] = x
    for k, m in enumerate(choice.members):
        member, own = _pack_posterior(m.posterior)
        about = {"weight": m.weight, "calibration": numbers_of(m.calibration), "nll": _safe(m.nll)}
        plain["members"].append(about | member)
        tensors |= above(k, own if m.log_probs is None else own | {"log_probs": m.log_probs})
    return plain, tensors


def unpack_choice(
    plain: Plain,
    tensors: Mapping[str, Tensor],
    frames: Mapping[str, BlockFrame],
    likelihood: Likelihood,
    train: Jacobian | None,
) -> StrengthChoice:
    """The average again, from how outputs depend on the weights at the training examples; None where directions say it."""
    kind, head = plain["kernel"]
    kernel = KERNELS[kind](frames, head) if head else KERNELS[kind](frames)  # type: ignore[call-arg]
    which = plain.get("directions", [0] * len(plain["members"]))
    trains = [train] if train is not None else [_directions(plain, tensors, frames, i) for i in range(max(which) + 1)]
    shift = below(tensors, "shift") if plain["has_shift"] else None
    ofs = [LinearisedNetwork(kernel, x, tensors["targets"], likelihood, int(plain["classes"]), shift) for x in trains]
    members = []
    for k, m in enumerate(plain["members"]):
        own = below(tensors, str(k))
        posterior = _unpack_posterior(m, own, ofs[which[k]])
        calibration = calibration_of(m["calibration"])
        members.append(
            StrengthMember(float(m["weight"]), posterior, calibration, float(m["nll"]), own.get("log_probs"))
        )
    if not members:
        raise DamagedFile("an exact posterior has no member.")
    options, criterion, strengths = plain["choice"]
    return StrengthChoice(tuple(members), int(options), str(criterion), int(strengths), _strength(plain["for_mode"]))


def _directions(plain: Plain, tensors: Mapping[str, Tensor], names: Mapping[str, Any], i: int) -> Jacobian:
    """Directions in the place of training examples, in the order of the network's blocks, in which kernels are added up."""
    blocks: dict[str, Any] = {}
    for name, x in below(tensors, f"train/{i}").items():
        kind, _, block = name.partition("/")
        blocks[block] = Directions(x) if kind == "along" else Rows(x.double(), x.new_zeros(len(x), 1, 1).double())
    return DirectionJacobian(torch.zeros(0, int(plain["classes"])), {name: blocks[name] for name in names})


def _pack_posterior(posterior: FunctionPosterior) -> Stored:
    latent, tensors, numbers = posterior.latent, {}, {}
    for f in fields(latent):
        value = getattr(latent, f.name)
        if f.name == "gram" or value is None:
            continue
        if isinstance(value, Tensor):
            tensors[f.name] = packed(value) if f.name in TRIANGLES else value
        else:
            numbers[f.name] = list(map(_safe, value)) if isinstance(value, tuple) else _safe(value)
    plain = {
        "posterior": _name(POSTERIORS, posterior),
        "latent": _name(LATENTS, latent),
        "strength": _strength_numbers(posterior.strength),
        "numbers": numbers,
    }
    return plain, tensors


def _unpack_posterior(plain: Plain, tensors: Mapping[str, Tensor], of: LinearisedNetwork) -> FunctionPosterior:
    kind = LATENTS[plain["latent"]]
    values: dict[str, Any] = {"gram": torch.empty(0, 0, dtype=torch.float64)}
    for f in fields(kind):
        if f.name in tensors:
            x = tensors[f.name]
            values[f.name] = unpacked(x, (math.isqrt(8 * len(x) + 1) - 1) // 2).tril() if f.name in TRIANGLES else x
        elif f.name in plain["numbers"]:
            value = plain["numbers"][f.name]
            values[f.name] = tuple(map(float, value)) if isinstance(value, list) else _unsafe(value)
        elif f.name == "coupling":
            values[f.name] = None  # outputs that the likelihood does not couple
        elif f.name != "gram":
            raise DamagedFile(f'"{f.name}" of a posterior is missing.')
    return POSTERIORS[plain["posterior"]](of, _strength(plain["strength"]), kind(**values))


def _name(kinds: Mapping[str, type], value: object) -> str:
    found = next((name for name, kind in kinds.items() if type(value) is kind), None)
    found = "gaussian noise" if found is None and isinstance(value, GaussianNoise) else found
    if found is None:
        raise NotStorable(f"a {type(value).__name__} has no place in a file.")
    return found


def _strength_numbers(strength: Strength | None) -> list[Any] | None:
    return None if strength is None else [_safe(x) for x in (strength.share, strength.floor, strength.head)]


def _strength(numbers: Sequence[Any] | None) -> Strength | None:
    return None if numbers is None else Strength(*map(float, numbers))


def _safe(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become text, which `float` takes."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _unsafe(value: Any) -> Any:
    return value if isinstance(value, int) else float(value)
