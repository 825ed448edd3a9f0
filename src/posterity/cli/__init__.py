"""The command line: thin, everything it does is a function elsewhere."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from posterity import __version__
from posterity.cli import extensions, prior
from posterity.cli.certify import audit, certify
from posterity.cli.zoo import listed
from posterity.errors import PosterityError


class _Commands(TyperGroup):
    """Our commands and those of other packages. Errors we raise on purpose are messages to the user, not tracebacks."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*super().list_commands(ctx), *extensions.names()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or extensions.command(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PosterityError as error:
            where = Console(stderr=True)
            where.print(f"[bold red]{type(error).__name__}[/bold red]: ", end="")
            where.print(str(error), markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from None


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_show_locals=False)
app.command()(audit)
app.command()(certify)
prior.app.command("zoo")(listed)
app.add_typer(prior.app, name="prior")


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"posterity {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def posterity(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Structured Gaussians over network weights, learned on one task and handed down to the next."""


__all__ = ["app"]
