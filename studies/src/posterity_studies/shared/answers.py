"""What a method of a few-shot study answers, and how it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posterity.predictive import ood_auroc, score


@dataclass(frozen=True, eq=False)
class Answer:
    """Probabilities of test pictures, and how unusual they and the unknown ones look."""

    probs: Tensor
    inside: Tensor
    outside: Tensor
    extra: Mapping[str, Any]

    @classmethod
    def by_entropy(cls, inside: Tensor, outside: Tensor, extra: Mapping[str, Any]) -> Answer:
        """For a method without a score of its own for unknown inputs."""
        return cls(inside, entropy(inside), entropy(outside), extra)

    def values(self, y: Tensor, seconds: float) -> dict[str, Any]:
        found = score(self.probs, y)
        names = ("accuracy", "nll", "brier", "ece", "calibration_auroc")
        measures = {name.replace("_", " "): getattr(found, name) for name in names}
        measures["auroc"] = ood_auroc(self.inside, self.outside)
        rounded = {name: float(f"{value:.5g}") for name, value in measures.items() if value == value}
        return {**rounded, "seconds": round(seconds, 2), **self.extra}


def entropy(probs: Tensor) -> Tensor:
    """Of probabilities, in nats."""
    return -torch.special.xlogy(probs, probs).sum(-1)
