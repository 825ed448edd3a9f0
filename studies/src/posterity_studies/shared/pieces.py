"""Networks kept between pieces of a training, so that a killed cell goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import nn

from posterity.files import replacing

Note = dict[str, float]


def kept(path: Path | None, model: nn.Module, train: Callable[[], Note]) -> Note:
    """What a piece of training notes; the network is left as it leaves it, trained now or read from the file.

    Without a path nothing is kept.
    """
    if path is not None and path.exists():
        with safetensors.safe_open(path, "pt") as file:
            found: Note = json.loads(file.metadata()["note"])
        model.load_state_dict(safetensors.torch.load_file(path), strict=False)
        return found
    note = train()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        moving = {name: p.detach().contiguous() for name, p in model.named_parameters() if p.requires_grad}
        with replacing(path) as draft:
            safetensors.torch.save_file(moving, draft, {"note": json.dumps(note)})
    return note


def identity(arguments: Mapping[str, Any], *unlike: str) -> list[str]:
    """What decides a training: a cell's arguments but for those that come after it."""
    return [json.dumps({k: v for k, v in arguments.items() if k not in unlike}, sort_keys=True)]
