"""Estimators as sealed folders: their numbers in a manifest, their Gaussians and weights beside it, and no code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from posterity.curvature import Categorical, GaussianNoise
from posterity.errors import BadFitFolder, NotStorable
from posterity.gaussian import load
from posterity.workflow.folders import (
    Remembered,
    check_new,
    open_parts,
    read_examples,
    read_sealed,
    save_parts,
    telling_damage,
    write_sealed,
)

KEY, FORMAT = "posterity_estimator", 1
LABELS = {"U": "text", "i": "whole", "u": "whole", "f": "number", "b": "truth"}
"""Kinds of labels by numpy's letter; others have no place in a file without code."""
ARRAYS = ("mean_", "scale_", "scores_")
PLAIN = ("hidden_sizes", "head", "standardise", "held_out", "training", "random_state")


def save_estimator(estimator: Any, folder: Path, overwrite: bool) -> None:
    """Write a fitted estimator.

    Args:
        estimator: a `PosteriorClassifier` or `PosteriorRegressor`.
        folder: the folder to make.
        overwrite: whether to replace one.
    Raises:
        BadFitFolder: if the folder is there already.
        NotStorable: if labels or options have no plain form.
    """
    check_new(folder, overwrite)
    fit = estimator.fit_
    classes = getattr(estimator, "classes_", None)
    told: dict[str, Any] = {
        KEY: FORMAT,
        "kind": type(estimator).__name__,
        "own_network": estimator.network is not None,
        "options": {name: _plain(name, getattr(estimator, name)) for name in PLAIN},
        "features": int(estimator.n_features_in_),
        "feature_names": _names(estimator),
        "classes": None if classes is None else _told(classes),
        "arrays": {name: getattr(estimator, name).tolist() for name in ARRAYS},
        "held_out": int(estimator.n_held_out_),
        "target": [getattr(estimator, "target_mean_", 0.0), getattr(estimator, "target_scale_", 1.0)],
        "noise": getattr(fit.likelihood, "precision", None),
        "calibration": list(fit.calibration.numbers),
        "in_function_space": fit.function is not None,
        "count": int(fit.curvature.count),
    }
    write_sealed(folder, told, lambda inside: save_parts(inside, fit, estimator._given, estimator._examples))


def load_estimator(kind: type[Any], folder: Path, network: Callable[[int, int], nn.Module] | None) -> Any:
    """Open what `save_estimator` wrote.

    Args:
        kind: the class that is asked for.
        folder: that was written.
        network: builds the network, where it was not the built-in one.
    Returns:
        The fitted estimator.
    Raises:
        BadFitFolder: if it is something else, or not as it was written.
    """
    found = read_sealed(folder, KEY, FORMAT, f"`{kind.__name__}.save`")
    with telling_damage(folder / "manifest.json"):
        if found["kind"] != kind.__name__:
            raise BadFitFolder(f"{folder} holds a {found['kind']}: open it with `pt.{found['kind']}.load`.")
        if found["own_network"] and network is None:
            raise BadFitFolder(
                f"{folder} was learned with a network of your own, which is code and not in the folder: "
                f'`{kind.__name__}.load("{folder.name}", network=the_function)` names it.'
            )
        given = folder / "given.safetensors"
        options = {**found["options"], "hidden_sizes": tuple(found["options"]["hidden_sizes"])}
        made = kind(network, prior=load(given) if given.is_file() else None, **options)
        made.n_features_in_ = int(found["features"])
        if found["feature_names"] is not None:
            made.feature_names_in_ = np.array(found["feature_names"], dtype=object)
        for name in ARRAYS:
            setattr(made, name, np.array(found["arrays"][name], dtype=np.float64))
        made.n_held_out_ = int(found["held_out"])
        likelihood: Any = Categorical()
        names: tuple[str, ...] = ()
        if found["classes"] is None:
            likelihood = GaussianNoise(None if found["noise"] is None else float(found["noise"]))
            made.target_mean_, made.target_scale_ = (float(value) for value in found["target"])
        else:
            made.classes_ = _labels(found["classes"])
            names = tuple(str(name) for name in made.classes_)
        calibration = tuple(float(value) for value in found["calibration"])
        known = Remembered(
            likelihood, calibration, bool(found["in_function_space"]), int(found["count"]), names, made.head
        )
        model = made.builder()(made.n_features_in_, len(names) or 1)
    made._given, made._examples = made.prior, read_examples(folder)
    made.fit_ = open_parts(folder, model, known)
    return made


def _plain(name: str, value: Any) -> Any:
    """A value as JSON has it. A source of randomness that is no number is not kept: what it gave is fitted already."""
    if name == "random_state" and not isinstance(value, int):
        return None
    if name == "training":
        value = None if value is None else dict(value)
    if name == "hidden_sizes":
        value = [int(size) for size in value]
    if (
        name == "training"
        and value is not None
        and not all(isinstance(v, (int, float, str, bool)) for v in value.values())
    ):
        raise NotStorable(
            "training holds options that are no numbers or words: they have no place in a file without code."
        )
    return value


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _told(classes: Any) -> dict[str, Any]:
    if classes.dtype.kind == "O" and all(isinstance(name, str) for name in classes):
        return {"kind": "object", "values": list(classes)}
    if classes.dtype.kind not in LABELS:
        raise NotStorable(f"labels of {classes.dtype} have no place in a file without code: use text or numbers.")
    return {"kind": LABELS[classes.dtype.kind], "values": classes.tolist()}


def _labels(found: Any) -> Any:
    kinds: dict[str, Any] = {"object": object, "text": str, "whole": np.int64, "number": np.float64, "truth": bool}
    return np.array(found["values"], dtype=kinds[found["kind"]])
