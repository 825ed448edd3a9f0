"""A learner as a folder of sealed files (`posterity.gaussian.container`). Loading runs no code.

    learner.safetensors       settings, the learned prior, and a sha256 of every column's file
    column-003.safetensors    column 3: its weights and statistics, without what all columns share, and its two Gaussians

Columns come first and the learner's file last, by renaming: a kill while columns are being added leaves the learner as it was
saved before. Where another learner is written over it, a kill leaves a folder that is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posterity.data.hashes import fingerprint
from posterity.errors import BadLearnerFile, BadPriorFile, PosterityError
from posterity.gaussian.bundle import Bundle, read_bundle, write_bundle
from posterity.kernel.storing import calibration_of, likelihood_of, numbers_of, plain_likelihood
from posterity.laplace import Scales
from posterity.progressive.bpnn import BPNN, LearnedTask, default_estimator
from posterity.progressive.column import Column
from posterity.progressive.prior import own_block

PAGE = "learner.safetensors"
SCALINGS = ("loo", "evidence", "catoni", "mcallester", "maurer")
Plain = int | float | str | bool | None


def save(learner: BPNN, folder: str | os.PathLike[str]) -> None:
    """Write a learner; the columns that are in the folder already, unchanged, are left as they are."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    before, columns = _columns_before(root), []
    for number, entry in enumerate(learner.learned):
        path, mark = _path(root, number), _mark(entry)
        known = before[number] if number < len(before) else {}
        if known.get("mark") != mark or not path.exists() or known.get("sha256") != _sha256(path):
            about = {
                "task": entry.task,
                "classes": entry.classes,
                "likelihood": plain_likelihood(entry.likelihood),
                "trace": entry.trace,
                "calibration": None if entry.calibration is None else numbers_of(entry.calibration),
            }
            gaussians = {"prior": entry.prior, "posterior": entry.posterior}
            write_bundle(path, {"column": about}, gaussians, {"weights": _own_state(entry.column, learner)})
        columns.append({"mark": mark, "sha256": _sha256(path)})
    training = {k: v for k, v in learner.training.items() if isinstance(v, Plain)}
    settings = {
        "laterals": list(learner.architecture.laterals),
        "head": learner.architecture.head,
        "frozen": _frozen(learner),
        "seed": learner.seed,
        "head_precision": learner.head_precision,
        "samples": learner.samples,
        "predictive": learner.predictive,
        "memory_limit": learner.memory_limit,
        "temperatures": list(learner.temperatures),
        "scales": _plain_scales(learner.scales),
        "estimator": repr(learner.estimator),
        "frames": learner.frames is not None,
        "training": training,
        "to_be_given": sorted(learner.training.keys() - training.keys()),
    }
    write_bundle(root / PAGE, {"learner": settings, "columns": columns}, {"prior": learner.prior}, {})


def load(folder: str | os.PathLike[str], model: nn.Module, **options: Any) -> BPNN:
    """The learner of a folder. What a file cannot hold (another estimator, an optimiser) has to be given again."""
    root = Path(folder)
    with _refusing(root, PAGE):
        page = read_bundle(root / PAGE)
        found, columns, prior = page.raw["learner"], list(page.raw["columns"]), page.gaussian("prior")
        settings: dict[str, Any] = {
            "seed": int(found["seed"]),
            "head_precision": float(found["head_precision"]),
            "samples": int(found["samples"]),
            "predictive": str(found["predictive"]),
            "memory_limit": int(found["memory_limit"]),
            "temperatures": tuple(map(float, found["temperatures"])),
            "scales": _scales(found["scales"]),
        }
        training, given = dict(found["training"]), dict(options.pop("training", None) or {})
        laterals, head, frozen = list(map(str, found["laterals"])), str(found["head"]), str(found["frozen"])
        estimator, missing = _present(str(found["estimator"])), [x for x in found["to_be_given"] if x not in given]
        if "estimator" not in options and estimator != repr(default_estimator(settings["scales"])):
            raise _bad(root, f"it was learned with {estimator[:100]}, which has to be given again: estimator=...")
        if found["frames"] and options.get("frames") is None:
            raise _bad(root, "its columns share eigenvectors, which have to be given again: frames=...")
        if missing:
            raise _bad(root, f"its training had {missing}, which a file cannot hold: give them in training=...")
    with _refusing(root, "the network given does not fit it"):
        learner = BPNN(model, prior, laterals, head, **settings | {"training": training | given} | options)
    if _frozen(learner) != frozen:
        raise _bad(root, "the frozen weights or statistics of the network given are not those it was learned with")
    for number, known in enumerate(columns):
        path = _path(root, number)
        with _refusing(root, path.name):
            if path.exists() and _sha256(path) != known["sha256"]:
                raise _bad(
                    root, f"{path.name} is not the file that was saved (sha256): bytes were changed, lost or added"
                )
            learner.adopt(_column(learner, root, number, read_bundle(path)))
    return learner


def _column(learner: BPNN, root: Path, number: int, file: Bundle) -> LearnedTask:
    about, prior, posterior = file.raw["column"], file.gaussian("prior"), file.gaussian("posterior")
    classes, head = int(about["classes"]), own_block(number, learner.architecture.head)
    # Before a column is built: a head of a thousand million classes would not fit into memory.
    if prior.blocks != posterior.blocks or head not in posterior.mean or len(posterior.mean[head]) != classes:
        raise _bad(root, f"the Gaussians of column {number} are not over the layers of a task with {classes} classes")
    column = learner.architecture.grow([entry.column for entry in learner.learned], classes, 0)
    state, own = file.below("weights"), _own_state(column, learner)
    there, here = ({name: tuple(x.shape) for name, x in one.items()} for one in (state, own))
    if odd := sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name)):
        raise _bad(root, f"column {number} and the network given differ in {odd[:5]}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])
    calibration = None if about["calibration"] is None else calibration_of(about["calibration"])
    likelihood, trace = likelihood_of(about["likelihood"]), float(about["trace"])
    return LearnedTask(str(about["task"]), likelihood, classes, column, prior, posterior, trace, None, calibration)


def _own_state(column: Column, learner: BPNN) -> dict[str, Tensor]:
    """A column's weights and statistics by name, without those that it shares with the template."""
    template = learner.architecture.template
    shared = {id(t) for t in (*template.parameters(), *template.buffers())}
    found: dict[str, Tensor] = {}
    for prefix, part in (("column", column.module), ("laterals", column.laterals)):
        for name, tensor in (*part.named_parameters(), *part.named_buffers()):
            if id(tensor) not in shared:
                found[f"{prefix}.{name}"] = tensor.detach()
    return found


def _columns_before(root: Path) -> list[Mapping[str, Any]]:
    try:
        columns = read_bundle(root / PAGE).raw.get("columns")
    except BadPriorFile:
        return []  # nothing that could be kept: all is written again
    return [c for c in columns if isinstance(c, Mapping)] if isinstance(columns, list) else []


@contextmanager
def _refusing(root: Path, what: str) -> Iterator[None]:
    """Whatever a damaged or forged file leads to is a `BadLearnerFile` that names it."""
    try:
        yield
    except BadLearnerFile:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, PosterityError) else f"{type(error).__name__}: {error}"
        raise _bad(root, f"{what} ({reason})") from error


def _bad(root: Path, reason: str) -> BadLearnerFile:
    return BadLearnerFile(f"{root}: {reason}. Give the folder of a saved learner and the network it was made with.")


def _path(root: Path, number: int) -> Path:
    return root / f"column-{number:03d}.safetensors"


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mark(entry: LearnedTask) -> str:
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
    template, backbone = learner.architecture.template, learner.backbone
    parts: list[str | Tensor] = []
    for name, p in template.named_parameters():
        if not p.requires_grad:
            parts += [name, p]
    for name, p in () if backbone is None else backbone.named_parameters():
        parts += [name, p]
    for part in (template, backbone):
        for name, buffer in () if part is None else part.named_buffers():
            if not name.endswith("num_batches_tracked"):
                parts += [name, buffer]
    return fingerprint(parts, digits=64)


def _present(estimator: str) -> str:
    """An estimator's text with the names that labels have now: files of earlier versions have shorter ones."""
    return re.sub(r"\b(Automatic|Empirical|Exact|Sampled)\(", r"\1Labels(", estimator)


def _plain_scales(scales: Any) -> Any:
    if not isinstance(scales, Scales):
        return scales
    return [dict(x) if isinstance(x, Mapping) else x for x in (scales.alpha, scales.beta, scales.temperature)]


def _scales(raw: Any) -> Any:
    if isinstance(raw, list):
        return Scales(*raw)
    if raw not in SCALINGS:
        raise ValueError(f"there is no scaling {raw!r}")
    return raw
