"""The state of a training run in a file, so that a kill loses at most an epoch."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posterity.data.batches import Workers
from posterity.errors import BadCheckpoint
from posterity.files import read_state, write_state
from posterity.laplace.averaging import Averaged
from posterity.laplace.prior import PriorPenalty
from posterity.laplace.run import Epoch, Run

KEYS = {"seed", "settings", "model", "optimiser", "generators", "torch", "cuda", "epochs", "best", "least", "stale"}


class Checkpoint(Run):
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
        averaged: Averaged | None,
    ) -> None:
        """Go on from the file, if there is one. Tensors and numbers only: nothing in it is run."""
        self.optimiser, self.generators, self.settings = optimiser, generators, dict(settings)
        self.penalty, self.averaged = penalty, averaged
        if self.found is None:
            return
        theirs = self.found["settings"]
        for name, value in self.settings.items():
            if repr(theirs.get(name)) != repr(value):
                raise BadCheckpoint(
                    f"{self.path} is not a checkpoint of this training: {name} was {theirs.get(name)} and is {value}. "
                    "Remove it to start again."
                )
        before = self.best_weights
        try:
            self._resume(self.found)
        except Exception as error:
            self.model.load_state_dict(before)
            raise self._bad(error) from error
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
        try:
            return _checked(read_state(self.path))
        except Exception as error:
            raise self._bad(error) from error

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
        _check_optimiser(state["optimiser"], self.optimiser)
        self.optimiser.load_state_dict(state["optimiser"])
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)
        torch.set_rng_state(state["torch"][self.workers.rank])
        if state["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])

    def _bad(self, error: Exception) -> BadCheckpoint:
        reason = next(iter(str(error).splitlines()), "").rstrip(".:")
        return BadCheckpoint(
            f"{self.path} is not a checkpoint of this training ({type(error).__name__}: {reason}): remove it to start again."
        )


def _check_optimiser(saved: Any, optimiser: torch.optim.Optimizer) -> None:
    """That a saved state has the form of the optimiser's own: what it would choke on later is reported now."""
    groups, own = saved["param_groups"], optimiser.state_dict()["param_groups"]
    if len(groups) != len(own):
        raise ValueError(f"{len(groups)} groups of parameters instead of {len(own)}")
    for group, mine in zip(groups, own, strict=True):
        if group.keys() != mine.keys():
            raise KeyError(", ".join(sorted(map(str, group.keys() ^ mine.keys()))))
        for name, value in mine.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            kinds: Any = int | float if number else type(value)
            if not isinstance(group[name], kinds) or (number and not math.isfinite(group[name])):
                raise TypeError(f"{name} is {str(group[name])[:40]}")
            if name in ("params", "betas") and len(group[name]) != len(value):
                raise ValueError(f"{name} has {len(group[name])} entries instead of {len(value)}")
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for number, entries in saved["state"].items():
        shape = parameters[number].shape
        for name, value in entries.items():
            if isinstance(value, Tensor) and value.numel() != 1 and value.shape != shape:
                raise ValueError(f"{name} of parameter {number} has shape {tuple(value.shape)[:9]}")
    _try_a_step(saved, optimiser)


def _try_a_step(saved: Any, optimiser: torch.optim.Optimizer) -> None:
    """One step of a copy, with gradients of zero: whatever the optimiser needs of its state is asked for here."""
    try:
        twin = copy.deepcopy(optimiser)
    except Exception:  # an optimiser that cannot be copied is believed
        return
    twin.load_state_dict(copy.deepcopy(saved))
    for group in twin.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    twin.step(lambda: 0.0)


def _checked(state: Any) -> dict[str, Any]:
    """A state with everything in it, of the right kind."""
    if not isinstance(state, dict) or KEYS - set(state):
        raise KeyError(", ".join(sorted(KEYS - set(state))) if isinstance(state, dict) else "a state")
    kinds = {
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
    for name, kind in kinds.items():
        if not isinstance(state.get(name), kind):
            raise TypeError(f"{name} is a {type(state.get(name)).__name__}")
    if not (-1 if state.get("first") else 0) <= state["best"] < max(1, len(state["epochs"])):
        raise ValueError(f"epoch {state['best']} of {len(state['epochs'])} cannot be the best")
    return dict(state)
