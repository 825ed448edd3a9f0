"""Where a command is to write is looked at first: before data is read, and long before anything is learned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer
from commands import call

from posterity.cli import app

CLOSED = Path("/sys")
"""A folder in which no one makes files."""


def writers(command, path=()):
    """Every command of ours with an option that names a place to write."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from writers(inner, (*path, name))
        return
    for option in command.params:
        if option.name in ("out", "page") and option.param_type_name == "option":
            yield path, command, option.opts[0]


ALL = list(writers(typer.main.get_command(app)))


@pytest.mark.parametrize(
    ("path", "command", "option"), ALL, ids=lambda v: " ".join(v) if isinstance(v, tuple) else None
)
def test_a_closed_place_is_refused_before_anything_is_read(tmp_path, path, command, option):
    if not CLOSED.is_dir() or os.name != "posix":
        pytest.skip("there is no folder here in which no one makes files")
    needed = ["nowhere" for p in command.params if p.param_type_name == "argument" and p.required]
    needed += ["--out", str(tmp_path / "fit")] if option != "--out" and path[-1] in ("learn", "adapt") else []
    told = call(*path, *needed, option, CLOSED / "x.csv", code=1).stderr
    assert told.startswith(f"NotWritable: {CLOSED}/x.csv cannot be written"), told
    told = call(*path, *needed, option, tmp_path / "no" / "x.csv", code=1).stderr
    assert told.startswith("MissingFolder: there is no folder"), told
    assert not list(tmp_path.iterdir())


def test_every_kind_of_output_is_among_them():
    found = {(" ".join(path), option) for path, _, option in ALL}
    assert {("learn", "--out"), ("adapt", "--out"), ("prior learn", "--out"), ("predict", "--out")} <= found
    assert {("evaluate", "--out"), ("certify", "--out"), ("certify", "--page"), ("audit", "--page")} <= found
