"""The state of a training run: kept in memory, and in a file when asked, so that a kill loses at most an epoch."""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from posterity.errors import BadCheckpoint

if TYPE_CHECKING:
    from posterity.laplace.train import Epoch


class Checkpoint:
    """Epochs so far, the best weights, and everything that the next epoch depends on."""

    def __init__(
        self, path: str | Path | None, model: nn.Module, optimiser: torch.optim.Optimizer, generator: torch.Generator
    ) -> None:
        self.path = None if path is None else Path(path)
        self.model, self.optimiser, self.generator = model, optimiser, generator
        self.epochs: list[Any] = []
        self.best, self.least, self.stale = 0, math.inf, 0
        self.best_weights = self._weights()

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def note(self, epoch: Epoch, watched: float) -> None:
        """One more epoch, judged by the loss that is watched."""
        self.epochs.append(epoch)
        if watched < self.least:
            self.best, self.least, self.stale = len(self.epochs) - 1, watched, 0
            self.best_weights = self._weights()
        else:
            self.stale += 1

    def restore_best(self) -> None:
        self.model.load_state_dict(self.best_weights)

    def save(self) -> None:
        """Write all of it beside the old file and put it in its place: there is always a whole one."""
        if self.path is None:
            return
        state = {
            "model": self._weights(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "torch": torch.get_rng_state(),
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "best": self.best,
            "least": self.least,
            "stale": self.stale,
            "best_weights": self.best_weights,
        }
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with open(beside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)

    def resume(self) -> None:
        """Go on from the file, if there is one. Tensors and numbers only: nothing in it is run."""
        if self.path is None or not self.path.exists():
            return
        from posterity.laplace.train import Epoch

        try:
            state = torch.load(self.path, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.generator.set_state(state["generator"])
            torch.set_rng_state(state["torch"])
            self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
            self.best, self.least, self.stale = state["best"], state["least"], state["stale"]
            self.best_weights = state["best_weights"]
        except Exception as error:
            raise BadCheckpoint(
                f"{self.path} is not a checkpoint of this training ({type(error).__name__}: {error}): remove it to start anew."
            ) from error
