"""An estimator as the one file of its fit: what scikit-learn's side knows beside it is plain values, and no code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from posterity.errors import DamagedFile, NotAFit, NotStorable, NotWritable, OtherNetwork
from posterity.gaussian.container import naming
from posterity.workflow.file import read_manifest, save_fit

LABELS = {"U": "text", "i": "whole", "u": "whole", "f": "number", "b": "truth"}
"""Kinds of labels by numpy's letter; others have no place in a file without code."""
TYPES: dict[str, Any] = {"object": object, "text": str, "whole": np.int64, "number": np.float64, "truth": bool}
ARRAYS = ("mean_", "scale_", "scores_", "held_groups_")
PLAIN = ("hidden_sizes", "head", "standardise", "held_out", "training", "random_state", "candidates")


def save_estimator(estimator: Any, path: Path, overwrite: bool) -> None:
    """Write a fitted estimator.

    Raises:
        NotWritable: if there is such a file already.
        NotStorable: if labels or options have no plain form.
    """
    if path.exists() and not overwrite:
        raise NotWritable(f"{path} is there already: choose another name; overwrite=True replaces it.")
    classes, names = getattr(estimator, "classes_", None), getattr(estimator, "feature_names_in_", None)
    extra: dict[str, Any] = {
        "kind": type(estimator).__name__,
        "own_network": estimator.network is not None,
        "options": {name: _plain(name, getattr(estimator, name)) for name in PLAIN},
        "features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else _labels(classes),
        "arrays": {name: getattr(estimator, name).tolist() for name in ARRAYS},
        "held_out": int(estimator.n_held_out_),
        "target": [getattr(estimator, "target_mean_", 0.0), getattr(estimator, "target_scale_", 1.0)],
    }
    save_fit(estimator.fit_, path, extra=extra, given=estimator.prior_)


def load_estimator(kind: type[Any], path: Path, network: Callable[[int, int], nn.Module] | None) -> Any:
    """Open what `save_estimator` wrote.

    Raises:
        BadPriorFile: under the fitting name, if it is something else, or not as it was written.
    """
    content = read_manifest(path)
    with naming(path):
        found = content.extra
        if found.get("kind") not in ("PosteriorClassifier", "PosteriorRegressor"):
            raise NotAFit(f"it holds a fit and no estimator: `{kind.__name__}.save` writes one.")
        if found["kind"] != kind.__name__:
            raise NotAFit(f"it holds a {found['kind']}: open it with `pt.{found['kind']}.load`.")
        if found["own_network"] and network is None:
            raise OtherNetwork(
                "it was learned with a network of your own, which is code and not in the file: "
                f'`{kind.__name__}.load("{path.name}", network=the_function)` names it.'
            )
        options = {**found["options"], "hidden_sizes": tuple(map(int, found["options"]["hidden_sizes"]))}
        made = kind(network, prior=content.given, **{name: options[name] for name in PLAIN})
        made.prior_ = made.prior
        made.n_features_in_ = int(found["features"])
        if found["feature_names"] is not None:
            made.feature_names_in_ = np.array([str(name) for name in found["feature_names"]], dtype=object)
        for name in ARRAYS:
            value = np.array(found["arrays"][name], dtype=np.float64)
            count = {"scores_": len(value), "held_groups_": len(getattr(made, "scores_", ()))}
            if value.shape != (count.get(name, made.n_features_in_),):
                raise DamagedFile(f"{name} has the shape {value.shape} for {made.n_features_in_} features.")
            setattr(made, name, value.astype(np.int64) if name == "held_groups_" else value)
        made.n_held_out_ = int(found["held_out"])
        if found["classes"] is None:
            made.target_mean_, made.target_scale_ = map(float, found["target"])
        else:
            made.classes_ = np.array(found["classes"]["values"], dtype=TYPES[found["classes"]["kind"]])
        made.fit_ = content.fit(
            made.builder()(made.n_features_in_, 1 if found["classes"] is None else len(made.classes_))
        )
    return made


def _plain(name: str, value: Any) -> Any:
    """A value as JSON has it. A source of randomness that is no number is not kept: what it gave is fitted already."""
    if name == "random_state":
        return value if isinstance(value, int) else None
    if name == "hidden_sizes":
        return [int(size) for size in value]
    if name == "training" and value is not None:
        if not all(isinstance(v, (int, float, str, bool)) for v in value.values()):
            raise NotStorable("training has options that are no numbers or words: they have no place in a file.")
        return dict(value)
    return value


def _labels(classes: Any) -> dict[str, Any]:
    if classes.dtype.kind == "O" and all(isinstance(name, str) for name in classes):
        return {"kind": "object", "values": list(classes)}
    if classes.dtype.kind not in LABELS:
        raise NotStorable(f"labels of {classes.dtype} have no place in a file without code: use text or numbers.")
    return {"kind": LABELS[classes.dtype.kind], "values": classes.tolist()}
