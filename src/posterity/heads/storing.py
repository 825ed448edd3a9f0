"""Heads as flat tensors and a dictionary for JSON: what goes into a file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor

from posterity.errors import DamagedFile
from posterity.heads.classes import ClassHead, HeadMember
from posterity.heads.numbers import NumberHead, NumberMember
from posterity.heads.recipe import HeadCandidate
from posterity.heads.views import KINDS, Axes, View
from posterity.kernel.stacking import Temperatures

Stored = tuple[dict[str, Tensor], dict[str, Any]]


def to_tensors(head: ClassHead | NumberHead) -> Stored:
    """A head without its training examples: `from_tensors` makes the same head of it."""
    tensors: dict[str, Tensor] = {}
    for kind, view in head.views.items():
        tensors |= {f"{kind}.centre": view.centre, f"{kind}.scale": view.scale, f"{kind}.limit": view.limit}
    if isinstance(head, ClassHead):
        tensors |= {"shift": head.shift, "axes.vectors": head.axes.vectors, "axes.values": head.axes.values}
        for i, member in enumerate(head.members):
            tensors |= {f"{i}.rows": member.rows, f"{i}.bias": member.bias}
        members: list[dict[str, Any]] = [
            {"candidate": asdict(m.candidate), "weight": m.weight, "temperatures": asdict(m.temperatures)}
            for m in head.members
        ]
        about: dict[str, Any] = {"temperatures": asdict(head.temperatures), "precision": head.precision}
        about |= {"kind": "classes", "curvature": head.curvature, "members": members}
    else:
        for kind in head.views:
            axes = head.axes[kind]
            tensors |= {
                f"{kind}.vectors": axes.vectors,
                f"{kind}.values": axes.values,
                f"{kind}.middle": head.middle[kind],
            }
        for i, number in enumerate(head.members):
            tensors[f"{i}.rows"] = number.rows
        numbers = [{"view": m.view, "strength": m.strength, "weight": m.weight, "noise": m.noise} for m in head.members]
        about = {"kind": "numbers", "members": numbers, "mean": head.mean, "count": head.count}
    # Tensors that share memory cannot go into one file.
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, about


def from_tensors(tensors: dict[str, Tensor], about: dict[str, Any]) -> ClassHead | NumberHead:
    """The head that `to_tensors` was given, or `DamagedFile` where a part is missing."""
    try:
        views = {k: View(k, tensors[f"{k}.centre"], tensors[f"{k}.scale"], tensors[f"{k}.limit"]) for k in KINDS}
        if about["kind"] == "classes":
            members = tuple(
                HeadMember(
                    HeadCandidate(**m["candidate"]),
                    m["weight"],
                    _temperatures(m["temperatures"]),
                    tensors[f"{i}.rows"],
                    tensors[f"{i}.bias"],
                )
                for i, m in enumerate(about["members"])
            )
            axes = Axes(tensors["axes.vectors"], tensors["axes.values"])
            whole = _temperatures(about["temperatures"])
            return ClassHead(views, members, tensors["shift"], whole, axes, about["precision"], about["curvature"])
        numbers = tuple(NumberMember(**m, rows=tensors[f"{i}.rows"]) for i, m in enumerate(about["members"]))
        spans = {k: Axes(tensors[f"{k}.vectors"], tensors[f"{k}.values"]) for k in KINDS}
        middle = {k: tensors[f"{k}.middle"] for k in KINDS}
        return NumberHead(views, spans, middle, numbers, about["mean"], about["count"])
    except (KeyError, TypeError) as error:
        raise DamagedFile(f"a part of the head is missing ({error}): write the file again.") from None


def _temperatures(about: dict[str, Any]) -> Temperatures:
    return Temperatures(tuple(about["values"]), tuple(about["weights"]))
