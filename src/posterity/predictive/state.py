"""Predictors as plain values and tensors, and back: what a file of a fit holds of them.

Nothing is computed again but the gradients at the training examples, in the same batches as before: predictions are the same to
the last bit. Kernel matrices of the training examples are left out, since no prediction needs them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from posterity.blocks import Replica
from posterity.curvature import Bernoulli, Categorical, GaussianNoise, Likelihood
from posterity.data.examples import TrainingSet
from posterity.errors import DamagedFile, NotStorable
from posterity.gaussian import Gaussian
from posterity.gaussian.container import packed, unpacked
from posterity.heads import ClassHead, from_tensors, to_tensors
from posterity.kernel import (
    BlockFrame,
    Calibration,
    FunctionPosterior,
    LinearisedNetwork,
    OutputKernel,
    SharedKernel,
    Strength,
    StrengthChoice,
    StrengthMember,
)
from posterity.kernel.directions import DirectionJacobian, Directions, DirectionsLatent, holds_examples
from posterity.kernel.gradients import Rows
from posterity.kernel.jacobian import Jacobian
from posterity.kernel.kernels import Kernel
from posterity.kernel.last_layer import WeightKernel, WeightsLatent, as_jacobian
from posterity.kernel.latent import LINKS, CoupledLatent, Latent, SharedLatent
from posterity.kernel.linearised import NetworkCentred
from posterity.kernel.variational import VariationalLatent, VariationalPosterior
from posterity.predictive.exact import AveragedNetworks, ExactLinear, LastLayer
from posterity.predictive.head import HeadPredictor, pack_head, unpack_head
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.on_features import HeadOnFeatures
from posterity.predictive.on_inputs import InputModelPredictor
from posterity.predictive.predictor import Plain, Predictor, Stack
from posterity.tables import from_plain, to_plain

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


@dataclass(frozen=True, eq=False)
class Context:
    """What predictors refer to, and do not hold themselves."""

    network: Replica
    prior: Gaussian
    posterior: Gaussian
    examples: TrainingSet | None


def without_examples(predictor: Predictor) -> tuple[Predictor, float]:
    """The same predictor without its training examples, and the largest relative change of a variance.

    Raises:
        NotStorable: if predictions cannot do without them.
    """
    match predictor:
        case Stack():
            parts = [(weight, *without_examples(part)) for weight, part in predictor.parts]
            return Stack(tuple((weight, part) for weight, part, _ in parts)), max(change for *_, change in parts)
        case ExactLinear():
            return predictor.without_examples()
        case InputModelPredictor() if predictor.needs_examples:
            raise NotStorable(
                "a Gaussian process on the inputs predicts from its training examples: save with examples=True, or learn "
                'without it, pt.learn(..., candidates="network").'
            )
        case HeadPredictor():
            return predictor.without_examples(), 0.0
    return predictor, 0.0


def pack(predictor: Predictor) -> tuple[Plain, dict[str, Tensor]]:
    """A predictor as plain values and tensors."""
    match predictor:
        case Stack():
            return _pack_stack(predictor)
        case StructuredGaussian():
            own = {"calibration": numbers_of(predictor.calibration)}
            return {"kind": "structured", **_meaning(predictor), **own}, {}
        case AveragedNetworks():
            tensors = {
                f"{i}/{name}": w for i, (_, network) in enumerate(predictor.networks) for name, w in network.items()
            }
            shares = [share for share, _ in predictor.networks]
            own = {"calibration": numbers_of(predictor.calibration), "shares": shares}
            return {"kind": "networks", **_meaning(predictor), **own}, tensors
        case HeadOnFeatures():
            head, about = to_tensors(predictor.head)
            tensors = {f"point/{name}": w for name, w in predictor.point.items()}
            plain = {"kind": "head on features", **_meaning(predictor), "layer": predictor.layer, "head": about}
            plain["calibration"] = numbers_of(predictor.calibration)
            return plain, tensors | {f"head/{k}": x for k, x in head.items()}
        case ExactLinear():
            return _pack_exact(predictor)
        case InputModelPredictor():
            own, tensors = to_plain(predictor.model)
            return {"kind": "on inputs", **_meaning(predictor), "model": own}, tensors
        case HeadPredictor():
            return pack_head(predictor)
    raise NotStorable(f"a {type(predictor).__name__} has no place in a file.")


def unpack(plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Predictor:
    """The predictor again."""
    match plain["kind"]:
        case "stack":
            parts = [unpack(part, _below(tensors, str(i)), context) for i, part in enumerate(plain["parts"])]
            if not parts:
                raise DamagedFile("an average has no parts.")
            return Stack(tuple(zip(map(float, plain["weights"]), parts, strict=True)))
        case "structured":
            own = calibration_of(plain["calibration"]), likelihood_of(plain["likelihood"]), _link(plain)
            return StructuredGaussian(context.posterior, *own)
        case "networks":
            networks = tuple((float(share), _below(tensors, str(i))) for i, share in enumerate(plain["shares"]))
            if not all(weights for _, weights in networks):
                raise DamagedFile("a network of an average has no weights.")
            return AveragedNetworks(
                networks, calibration_of(plain["calibration"]), likelihood_of(plain["likelihood"]), _link(plain)
            )
        case "on inputs":
            rows = None if context.examples is None else context.examples.whole.positional[0].double().cpu()
            model = from_plain(plain["model"], tensors, rows)
            return InputModelPredictor(model, likelihood_of(plain["likelihood"]), _link(plain))
        case "head on features":
            head = from_tensors(_below(tensors, "head"), plain["head"])
            if not isinstance(head, ClassHead):
                raise DamagedFile("a head on features is for classes, and this one is not.")
            point = _below(tensors, "point")
            soft = calibration_of(plain["calibration"])
            return HeadOnFeatures(
                point, str(plain["layer"]), head, soft, likelihood_of(plain["likelihood"]), _link(plain)
            )
        case "exact" | "last layer":
            return _unpack_exact(plain, tensors, context)
        case "features":
            return unpack_head(plain, tensors, context.examples)
    raise DamagedFile(f"no predictor is called {plain['kind']!r}.")


def _pack_stack(stack: Stack) -> tuple[Plain, dict[str, Tensor]]:
    parts: list[Plain] = []
    tensors: dict[str, Tensor] = {}
    for i, (_, part) in enumerate(stack.parts):
        plain, own = pack(part)
        parts.append(plain)
        tensors |= {f"{i}/{name}": tensor for name, tensor in own.items()}
    return {"kind": "stack", "weights": [weight for weight, _ in stack.parts], "parts": parts}, tensors


def _pack_exact(exact: ExactLinear) -> tuple[Plain, dict[str, Tensor]]:
    choice, of = exact.choice, exact.choice.best.posterior.of
    tensors: dict[str, Tensor] = {f"point/{name}": x for name, x in exact.point.items()}
    tensors |= {f"shift/{name}": x for name, x in (of.shift or {}).items()}
    tensors["targets"] = of.targets
    if exact.rows is not None:
        tensors["rows"] = exact.rows
    plain: Plain = {"kind": "exact", **_meaning(exact)}
    if isinstance(exact, LastLayer):
        plain |= {"kind": "last layer", "head": exact.head}
    if not holds_examples(choice.best.posterior):
        trains = {id(p.of): p.of.train for p, _ in exact.parts()}
        plain["directions"] = [list(trains).index(id(p.of)) for p, _ in exact.parts()]
        for i, train in enumerate(trains.values()):
            for name, block in train.blocks.items():
                kind, x = ("features", block.a) if isinstance(block, Rows) else ("along", block.d)  # type: ignore[union-attr]
                tensors[f"train/{i}/{kind}/{name}"] = x
    elif isinstance(exact, LastLayer):
        rows: Any = of.train.blocks[exact.head]
        tensors["features"] = _narrow(rows.a, next(iter(exact.point.values())).dtype)
    plain["kernel"] = [_name(KERNELS, of.kernel), getattr(of.kernel, "head", "")]
    plain |= {"classes": of.classes, "has_shift": of.shift is not None}
    members = []
    for k, m in enumerate(choice.members):
        packed_one, own = _pack_posterior(m.posterior)
        members.append(
            {"weight": m.weight, "calibration": numbers_of(m.calibration), "nll": _safe(m.nll), **packed_one}
        )
        tensors |= {f"{k}/{name}": x for name, x in own.items()}
        if m.log_probs is not None:
            tensors[f"{k}/log_probs"] = m.log_probs
    plain["members"] = members
    plain["choice"] = [choice.options, choice.criterion, choice.strengths]
    plain["for_mode"] = _strength_numbers(choice.for_mode)
    return plain, tensors


def _unpack_exact(plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> ExactLinear:
    point, likelihood = _below(tensors, "point"), likelihood_of(plain["likelihood"])
    frames = {name: BlockFrame.of(context.prior.precision[name]) for name in point}
    empty = ExactLinear(point, frames, StrengthChoice((), 0, ""), likelihood, _link(plain), tensors.get("rows"))
    if plain["kind"] == "last layer":
        empty = LastLayer(point, frames, empty.choice, likelihood, empty.link, head=str(plain["head"]))
    kind, head = plain["kernel"]
    kernel = KERNELS[kind](frames, head) if head else KERNELS[kind](frames)  # type: ignore[call-arg]
    shift = _below(tensors, "shift") if plain["has_shift"] else None
    trains, which = _trains(plain, tensors, empty, context), plain.get("directions")
    ofs = [LinearisedNetwork(kernel, x, tensors["targets"], likelihood, int(plain["classes"]), shift) for x in trains]
    members = []
    if not plain["members"]:
        raise DamagedFile("an exact posterior has no member.")
    for k, m in enumerate(plain["members"]):
        own = _below(tensors, str(k))
        posterior = _unpack_posterior(m, own, ofs[which[k] if which else 0])
        found = StrengthMember(
            float(m["weight"]), posterior, calibration_of(m["calibration"]), float(m["nll"]), own.get("log_probs")
        )
        members.append(found)
    if not members:
        raise DamagedFile("a posterior has no members.")
    options, criterion, strengths = plain["choice"]
    for_mode = _strength(plain["for_mode"])
    choice = StrengthChoice(tuple(members), int(options), str(criterion), int(strengths), for_mode)
    values = {f.name: getattr(empty, f.name) for f in fields(empty)} | {"choice": choice}
    return type(empty)(**values)


def _trains(plain: Plain, tensors: Mapping[str, Tensor], empty: ExactLinear, context: Context) -> Sequence[Jacobian]:
    """How outputs depend on the weights at the training examples; or directions in their place, a set for each posterior."""
    if "directions" in plain:
        found: list[Jacobian] = []
        for i in range(max(plain["directions"]) + 1):
            own, blocks = _below(tensors, f"train/{i}"), {}
            for name, x in own.items():
                kind, _, block = name.partition("/")
                blocks[block] = (
                    Directions(x) if kind == "along" else Rows(x.double(), x.new_zeros(len(x), 1, 1).double())
                )
            # In the order of the network's blocks, in which kernels are added up.
            ordered = {name: blocks[name] for name in empty.point}
            found.append(DirectionJacobian(torch.zeros(0, int(plain["classes"])), ordered))
        return found
    if isinstance(empty, LastLayer):
        features = tensors["features"].double()
        return [as_jacobian(empty.head, features, features.new_zeros(len(features), int(plain["classes"])))]
    if context.examples is None:
        raise DamagedFile("the training examples are missing, and predictions are computed from them.")
    examples = context.examples if empty.rows is None else context.examples.rows(empty.rows)
    with torch.no_grad():
        return [empty.jacobian(context.network, examples.inputs)]


def _pack_posterior(posterior: FunctionPosterior) -> tuple[Plain, dict[str, Tensor]]:
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


def _narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """In the network's own precision, where nothing is lost by it."""
    return x.to(dtype) if torch.equal(x.to(dtype).double(), x) else x


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: x for name, x in tensors.items() if name.startswith(f"{prefix}/")}


def _meaning(predictor: Predictor) -> Plain:
    return {"likelihood": plain_likelihood(predictor.likelihood), "link": predictor.link}


def plain_likelihood(likelihood: Likelihood) -> Plain:
    """What outputs mean, as plain values."""
    own = ("precision", "per_input") if isinstance(likelihood, GaussianNoise) else ()
    return {"kind": _name(LIKELIHOODS, likelihood), **{name: getattr(likelihood, name) for name in own}}


def likelihood_of(plain: Plain) -> Likelihood:
    kind = LIKELIHOODS[plain["kind"]]
    return GaussianNoise(plain["precision"], bool(plain["per_input"])) if kind is GaussianNoise else kind()


def _link(plain: Plain) -> Any:
    if plain["link"] not in LINKS:
        raise DamagedFile(f"no link is called {plain['link']!r}.")
    return plain["link"]


def _name(kinds: Mapping[str, type], value: object) -> str:
    found = next((name for name, kind in kinds.items() if type(value) is kind), None)
    found = "gaussian noise" if found is None and isinstance(value, GaussianNoise) else found
    if found is None:
        raise NotStorable(f"a {type(value).__name__} has no place in a file.")
    return found


def numbers_of(calibration: Calibration) -> list[Any]:
    return [_safe(calibration.tau), _safe(calibration.temperature)]


def calibration_of(numbers: Sequence[Any]) -> Calibration:
    found = Calibration(*map(float, numbers[:2]))  # older files have a third, which scored unknown inputs
    if not (0 <= found.tau < LARGEST and 1 / LARGEST < found.temperature < LARGEST):
        raise DamagedFile(f"a width of {found.tau} and a temperature of {found.temperature} are none.")
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
