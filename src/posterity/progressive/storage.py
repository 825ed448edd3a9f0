"""A learner as a folder: a page of JSON, and safetensors files for each column. Loading runs no code.

    learner.json                    names, sizes, settings, a sha256 of every other file, and one of the page itself
    prior.safetensors               the learned prior
    column-003-prior.safetensors    the Gaussians of column 3 over its own blocks
    column-003-posterior.safetensors
    column-003-weights.safetensors  its weights and statistics, without what all columns share

Files of columns come first and the page last, by renaming: a kill while columns are being added leaves the learner as it was
saved before. Where another learner is written over it, a kill leaves a folder that is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from posterity.curvature import Bernoulli, Categorical, GaussianNoise, Likelihood
from posterity.data.hashes import fingerprint
from posterity.errors import BadLearnerFile, BadPriorFile, PosterityError
from posterity.files import write_whole
from posterity.gaussian import load as load_gaussian
from posterity.kernel import Calibration
from posterity.laplace import Scales
from posterity.progressive.bpnn import BPNN, Learned, default_estimator
from posterity.progressive.column import Column
from posterity.progressive.prior import own_block

FORMAT = 3
PAGE, PRIOR = "learner.json", "prior.safetensors"
KINDS = ("prior", "posterior", "weights")
Plain = int | float | str | bool | None


def save(learner: BPNN, folder: str | os.PathLike[str]) -> None:
    """Write a learner; the columns that are in the folder's page already, unchanged, are left as they are."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    before = _entries_before(root)
    learner.prior.save(root / PRIOR)
    entries = []
    for number, entry in enumerate(learner.learned):
        mark = _mark(entry)
        if number < len(before) and before[number].get("mark") == mark and _whole(root, number, before[number]):
            entries.append(before[number])
            continue
        entry.prior.save(root / _name(number, "prior"))
        entry.posterior.save(root / _name(number, "posterior"))
        _save_weights(_own_state(entry.column, learner.architecture.template), root, number)
        entries.append(
            {
                "task": entry.task,
                "classes": entry.classes,
                "likelihood": _likelihood_to_json(entry.likelihood),
                "trace": entry.trace,
                "calibration": _calibration_to_json(entry.calibration),
                "mark": mark,
                "files": {kind: _sha256(root / _name(number, kind)) for kind in KINDS},
            }
        )
    training = {k: v for k, v in learner.training.items() if isinstance(v, Plain)}
    page = {
        "format": FORMAT,
        "laterals": list(learner.architecture.laterals),
        "head": learner.architecture.head,
        "frozen": _frozen(learner),
        "seed": learner.seed,
        "head_precision": learner.head_precision,
        "samples": learner.samples,
        "predictive": learner.predictive,
        "memory_limit": learner.memory_limit,
        "temperatures": list(learner.temperatures),
        "scaling": _scaling_to_json(learner),
        "estimator": repr(learner.estimator),
        "frames": learner.frames is not None,
        "training": training,
        "to_be_given": sorted(learner.training.keys() - training.keys()),
        "prior": _sha256(root / PRIOR),
        "columns": entries,
    }
    write_whole(root / PAGE, json.dumps(page | {"seal": _seal(page)}, indent=1, allow_nan=False).encode())


def load(folder: str | os.PathLike[str], model: nn.Module, **options: Any) -> BPNN:
    """The learner of a folder. What a file cannot hold (another estimator, an optimiser) has to be given again."""
    root = Path(folder)
    page = _page(root)
    try:
        settings = {
            "seed": _typed(page, "seed", int),
            "head_precision": float(_typed(page, "head_precision", int | float)),
            "samples": _typed(page, "samples", int),
            # Learners of earlier versions do not say.
            "predictive": _typed({"predictive": "sampled"} | page, "predictive", str),
            "memory_limit": _typed(page, "memory_limit", int),
            "temperatures": tuple(float(t) for t in _typed(page, "temperatures", list)),
            "scales": _scaling(page["scaling"]),
            "training": dict(_typed(page, "training", dict)),
        }
        laterals = [_typed({"a lateral": name}, "a lateral", str) for name in _typed(page, "laterals", list)]
        head, columns = _typed(page, "head", str), [dict(c) for c in _typed(page, "columns", list)]
        estimator, to_be_given = _typed(page, "estimator", str), [str(x) for x in _typed(page, "to_be_given", list)]
        _typed(page, "prior", str)
        _typed(page, "frozen", str)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise _bad(root, f"{PAGE} is not a learner's page ({type(error).__name__}: {error})") from error
    given = options.get("training") or {}
    if "estimator" not in options and estimator != repr(default_estimator(settings["scales"])):
        raise _bad(root, f"it was learned with {estimator[:100]}, which has to be given again: estimator=...")
    if page.get("frames") and options.get("frames") is None:
        raise _bad(root, "its columns share eigenvectors, which have to be given again: frames=...")
    if missing := [name for name in to_be_given if name not in given]:
        raise _bad(root, f"its training had {missing}, which a file cannot hold: give them in training=...")
    settings["training"] = settings["training"] | dict(given)
    options = settings | {k: v for k, v in options.items() if k != "training"}
    _check(root, PRIOR, page["prior"])
    try:
        learner = BPNN(model, load_gaussian(root / PRIOR), laterals, head, **options)
    except BadPriorFile:
        raise
    except Exception as error:
        raise _bad(root, f"the network given does not fit it ({type(error).__name__}: {error})") from error
    if _frozen(learner) != page["frozen"]:
        raise _bad(root, "the frozen weights or statistics of the network given are not those it was learned with")
    for number, entry in enumerate(columns):
        try:
            learner.adopt(_column(learner, root, number, entry))
        except PosterityError:
            raise
        except Exception as error:  # whatever a forged page makes of a column
            raise _bad(root, f"column {number} cannot be read ({type(error).__name__}: {error})") from error
    return learner


def _column(learner: BPNN, root: Path, number: int, entry: Mapping[str, Any]) -> Learned:
    classes, task = _typed(entry, "classes", int), _typed(entry, "task", str)
    for kind in KINDS:
        _check(root, _name(number, kind), entry["files"][kind])
    prior, posterior = (load_gaussian(root / _name(number, kind)) for kind in ("prior", "posterior"))
    head = own_block(number, learner.architecture.head)
    # Before a column is built: a head of a thousand million classes would not fit into memory.
    if prior.blocks != posterior.blocks or head not in posterior.mean or len(posterior.mean[head]) != classes:
        raise _bad(root, f"the Gaussians of column {number} are not over the layers of a task with {classes} classes")
    column = learner.architecture.grow([entry.column for entry in learner.learned], classes, 0)
    path = root / _name(number, "weights")
    state = safetensors.torch.load(path.read_bytes())
    expected = _own_state(column, learner.architecture.template)
    if odd := sorted(state.keys() ^ expected.keys()):
        raise _bad(root, f"{path.name} and the network given differ in {odd[:5]}")
    with torch.no_grad():
        for name, tensor in expected.items():
            if tensor.shape != state[name].shape:
                raise _bad(
                    root,
                    f'"{name}" has shape {tuple(state[name].shape)} in {path.name} and {tuple(tensor.shape)} in the network',
                )
            tensor.copy_(state[name])
    likelihood, trace = _likelihood(entry["likelihood"]), float(_typed(entry, "trace", int | float))
    calibration = _calibration(entry.get("calibration"))
    return Learned(task, likelihood, classes, column, prior, posterior, trace, None, calibration)


def _own_state(column: Column, template: nn.Module) -> dict[str, Tensor]:
    """A column's weights and statistics by name, without those that it shares with the template."""
    shared = {id(t) for t in (*template.parameters(), *template.buffers())}
    found: dict[str, Tensor] = {}
    for prefix, part in (("column", column.module), ("laterals", column.laterals)):
        for name, tensor in (*part.named_parameters(), *part.named_buffers()):
            if id(tensor) not in shared:
                found[f"{prefix}.{name}"] = tensor.detach()
    return found


def _save_weights(state: dict[str, Tensor], root: Path, number: int) -> None:
    data = safetensors.torch.save({name: t.cpu().contiguous().clone() for name, t in state.items()})
    write_whole(root / _name(number, "weights"), data)


def _whole(root: Path, number: int, entry: Mapping[str, Any]) -> bool:
    """Whether the files of a column are there as its entry says."""
    paths = {kind: root / _name(number, kind) for kind in KINDS}
    return all(path.exists() and _sha256(path) == entry["files"][kind] for kind, path in paths.items())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(root: Path, name: str, expected: str) -> None:
    if not (root / name).exists():
        raise _bad(root, f"{name} is missing")
    if _sha256(root / name) != expected:
        raise _bad(root, f"{name} is not the file that was saved (sha256): bytes were changed, lost or added")


def _seal(page: Mapping[str, Any]) -> str:
    """Shows whether a page was changed by hand or by chance; not who wrote it."""
    rest = {name: value for name, value in page.items() if name != "seal"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _page(root: Path) -> dict[str, Any]:
    try:
        page = json.loads((root / PAGE).read_bytes())
    except FileNotFoundError:
        raise _bad(root, f"there is no {PAGE} in it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _bad(root, f"{PAGE} cannot be read ({type(error).__name__}: {error})") from error
    if not isinstance(page, dict) or type(page.get("format")) is not int:
        raise _bad(root, f"{PAGE} is not a learner's page")
    if page["format"] != FORMAT:
        advice = "learn its tasks again" if page["format"] < FORMAT else "upgrade"
        raise _bad(root, f"it is in format {page['format']} and this posterity reads format {FORMAT}: {advice}")
    try:
        seal = _seal(page)
    except (ValueError, RecursionError) as error:
        raise _bad(root, f"{PAGE} is not a learner's page ({type(error).__name__}: {error})") from error
    if page.get("seal") != seal:
        raise _bad(root, f"{PAGE} is not the page that was saved (sha256): it was changed")
    return page


def _entries_before(root: Path) -> list[dict[str, Any]]:
    try:
        columns = _page(root).get("columns")
    except BadLearnerFile:
        return []  # nothing that could be kept: all is written again
    return [c for c in columns if isinstance(c, dict)] if isinstance(columns, list) else []


def _typed(page: Mapping[str, Any], name: str, kind: Any) -> Any:
    """A value of the page, of this kind and no other."""
    value = page[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} is a {type(value).__name__}")
    return value


def _bad(root: Path, reason: str) -> BadLearnerFile:
    return BadLearnerFile(f"{root}: {reason}. Give the folder of a saved learner and the network it was made with.")


def _name(number: int, kind: str) -> str:
    return f"column-{number:03d}-{kind}.safetensors"


def _mark(entry: Learned) -> str:
    """Differs between columns: over its means, and the traces of its precisions."""
    described = (entry.task, entry.classes, entry.likelihood, entry.trace, entry.calibration)
    parts: list[str | Tensor] = [repr(described)]
    for gaussian in (entry.prior, entry.posterior):
        parts.append(repr(gaussian))
        for name, mean in gaussian.mean.items():
            parts += [mean, float(gaussian.precision[name].trace()).hex()]
    return fingerprint(parts)


def _frozen(learner: BPNN) -> str:
    """A fingerprint of everything that columns share and no file holds."""
    parts: list[str | Tensor] = []
    for name, p in learner.architecture.template.named_parameters():
        if not p.requires_grad:
            parts += [name, p]
    if learner.backbone is not None:
        for name, p in learner.backbone.named_parameters():
            parts += [name, p]
    for part in (learner.architecture.template, learner.backbone):
        for name, buffer in () if part is None else part.named_buffers():
            if not name.endswith("num_batches_tracked"):
                parts += [name, buffer]
    return fingerprint(parts, digits=64)


def _likelihood_to_json(likelihood: Likelihood) -> list[Any]:
    if isinstance(likelihood, GaussianNoise):
        return ["GaussianNoise", likelihood.value]
    return [type(likelihood).__name__]


def _likelihood(raw: Any) -> Likelihood:
    match raw:
        case ["Categorical"]:
            return Categorical()
        case ["Bernoulli"]:
            return Bernoulli()
        case ["GaussianNoise", float(precision) | int(precision)]:
            return GaussianNoise(float(precision))
    raise ValueError(f"there is no likelihood {raw!r}")


def _calibration_to_json(calibration: Calibration | None) -> list[float] | None:
    return None if calibration is None else [calibration.tau, calibration.temperature]


def _calibration(raw: Any) -> Calibration | None:
    match raw:
        case None:
            return None
        case [float(tau) | int(tau), float(temperature) | int(temperature)] if tau > 0 and temperature >= 1:
            return Calibration(float(tau), float(temperature))
    raise ValueError(f"there is no calibration {raw!r}")


def _scaling_to_json(learner: BPNN) -> Any:
    if not isinstance(learner.scales, Scales):
        return learner.scales
    s = learner.scales
    return [dict(x) if isinstance(x, Mapping) else x for x in (s.alpha, s.beta, s.temperature)]


def _scaling(raw: Any) -> Any:
    if isinstance(raw, list):
        return Scales(*raw)
    if raw not in ("loo", "evidence", "catoni", "mcallester", "maurer"):
        raise ValueError(f"there is no scaling {raw!r}")
    return raw
