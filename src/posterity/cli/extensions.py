"""Commands that other packages bring: they appear when the package is installed.

A package names a `typer.Typer` in the entry-point group `posterity.commands`. It is imported when its command is called
or listed, so that the other commands start without it.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import typer

GROUP = "posterity.commands"
STUDIES = {
    "demo": "A watch meets a new wearer: learn a prior, adapt it, compare, show.",
    "study": "Reproduce what the paper claims, and see where we differ.",
}
"""What the studies bring, known by name so that a call without them says how to get them."""


def names() -> list[str]:
    """All commands of other packages, installed or known."""
    return sorted({*STUDIES, *(found.name for found in entry_points(group=GROUP))})


def command(name: str) -> Any:
    """The command of that name as click has it; None where no one knows it."""
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None and name not in STUDIES:
        return None
    built = typer.main.get_command(_missing(name) if found is None else found.load())
    built.name = name  # help lists commands by it
    return built


def _missing(name: str) -> typer.Typer:
    """Stands in for a command that is not installed: one line, exit code 2."""
    app = typer.Typer()

    # Whatever is asked of the command, the answer is the same.
    @app.command(
        help=f"{STUDIES[name]} (Not installed: it comes with posterity-studies.)",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def say_how() -> None:
        typer.echo(
            f"posterity {name} is in the package posterity-studies: "
            "pip install posterity-studies (in a clone of the repository: pip install ./studies).",
            err=True,
        )
        raise typer.Exit(2)

    return app
