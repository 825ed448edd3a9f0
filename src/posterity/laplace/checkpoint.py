"""The state of a training run in a file, so that a kill loses at most an epoch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posterity.data.batches import Workers
from posterity.errors import BadCheckpoint
from posterity.files import check_settings, read_state, resuming, write_state
from posterity.laplace.averaging import WeightAverage
from posterity.laplace.prior import PriorPenalty
from posterity.laplace.run import Epoch, TrainingRun

WHAT = "this training"
KINDS = {
    "seed": int,
    "settings": dict,
    "model": dict,
    "optimiser": dict,
    "generators": list,
    "torch": Tensor,
    "cuda": list,
    "epochs": list,
    "best": int,
    "least": float,
    "stale": int,
    "best_weights": dict,
}


class Checkpoint(TrainingRun):
    """A run with everything that its next epoch depends on, in a file.

    Of several workers the first writes and all read.
    """

    def __init__(self, path: str | Path, workers: Workers) -> None:
        super().__init__(workers)
        self.path = Path(path)
        self.found = self._read()
        self.known_seed = None if self.found is None else int(self.found["seed"])

    def resume(
        self,
        optimiser: torch.optim.Optimizer,
        generators: list[torch.Generator],
        settings: Mapping[str, Any],
        penalty: PriorPenalty | None,
        averaged: WeightAverage | None,
    ) -> None:
        """Go on from the file, if there is one. Tensors and numbers only: nothing in it is run."""
        self.optimiser, self.generators, self.settings = optimiser, generators, dict(settings)
        self.penalty, self.averaged = penalty, averaged
        if self.found is None:
            return
        check_settings(self.path, WHAT, self.found["settings"], self.settings)
        before = self.best_weights
        try:
            with resuming(self.path, WHAT):
                self._resume(self.found)
        except BadCheckpoint:
            self.model.load_state_dict(before)
            raise
        self.found = None

    def save(self) -> None:
        """Write all of it beside the old file and put it in its place: there is always a whole one."""
        noise = torch.stack(self.workers.gather(torch.get_rng_state()))
        if self.workers.rank:
            return
        state = {
            "seed": self.seed,
            "settings": self.settings,
            "model": self._weights(),
            "optimiser": self.optimiser.state_dict(),
            "generators": [generator.get_state() for generator in self.generators],
            "torch": noise,
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "best": self.best,
            "least": self.least,
            "stale": self.stale,
            "best_weights": self.best_weights,
            "first": None if self.first is None else asdict(self.first),
            # Only where the next step depends on it.
            "penalty": self.penalty.state() if self.penalty is not None and self.penalty.every > 1 else None,
            "averaged": None if self.averaged is None else self.averaged.state(),
        }
        write_state(self.path, state)

    def _read(self) -> dict[str, Any] | None:
        """The state in the file, if there is one: sealed, so that damage does not become weights."""
        if not self.path.exists():
            return None
        with resuming(self.path, WHAT):
            state: dict[str, Any] = read_state(self.path)
            for name, kind in KINDS.items():
                if not isinstance(state.get(name), kind):
                    raise TypeError(f"{name} is a {type(state.get(name)).__name__}")
            if not (-1 if state.get("first") else 0) <= state["best"] < max(1, len(state["epochs"])):
                raise ValueError(f"epoch {state['best']} of {len(state['epochs'])} cannot be the best")
        return state

    def _resume(self, state: dict[str, Any]) -> None:
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self.best, self.least, self.stale = state["best"], state["least"], state["stale"]
        self.best_weights = state["best_weights"]
        if state.get("first") is not None:
            self.first = Epoch(**state["first"])
        if state.get("penalty") is not None and self.penalty is not None:
            self.penalty.restore(state["penalty"])
        if state.get("averaged") is not None and self.averaged is not None:
            self.averaged.restore(state["averaged"])
        self.restore_best()  # which tells now whether they fit
        self.model.load_state_dict(state["model"])
        _try_a_step(state["optimiser"], self.optimiser)
        self.optimiser.load_state_dict(state["optimiser"])
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)
        torch.set_rng_state(state["torch"][self.workers.rank])
        if state["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])


def _try_a_step(saved: Any, optimiser: torch.optim.Optimizer) -> None:
    """One step of a copy, with gradients of zero: whatever the optimiser would choke on later is met now."""
    try:
        twin = copy.deepcopy(optimiser)
    except Exception:  # an optimiser that cannot be copied is believed
        return
    twin.load_state_dict(copy.deepcopy(saved))
    parameters = [p for group in twin.param_groups for p in group["params"]]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    twin.step(lambda: 0.0)
    if not all(bool(p.isfinite().all()) for p in parameters):
        raise ValueError("its optimiser leads to weights that are not finite")
