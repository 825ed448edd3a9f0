"""The command line: thin, everything it does is a function elsewhere."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from posterity import __version__
from posterity.cli import data, extensions, prior
from posterity.cli.asking import ask
from posterity.cli.certify import audit, certify
from posterity.cli.learning import adapt, learn
from posterity.cli.using import evaluate, predict
from posterity.errors import NoCertificate, PosterityError

REFUSED, NO_CERTIFICATE, BUG, STOPPED = 1, 3, 4, 130
EXIT_CODES = (
    "Exit codes: 0 done; 1 an error with a name and a remedy; 2 the command was typed wrong; 3 a certificate was refused because "
    "it would not hold; 4 an error no one foresaw (--debug shows where); 130 stopped by Ctrl-C."
)


class _Commands(TyperGroup):
    """Our commands and those of other packages. An error is one line and an exit code; `--debug` shows the traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*super().list_commands(ctx), *extensions.names()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or extensions.command(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Wherever it stands: no one types it first.
        ctx.obj = {"debug": "--debug" in args}
        return super().parse_args(ctx, [arg for arg in args if arg != "--debug"])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PosterityError as error:
            raise _exit(ctx, error, NO_CERTIFICATE if isinstance(error, NoCertificate) else REFUSED) from None
        except KeyboardInterrupt as error:
            raise _exit(ctx, error, STOPPED) from None
        except (
            RuntimeError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OSError,
            MemoryError,
            AssertionError,
        ) as error:
            # typer's own errors and exits are RuntimeErrors of click, and go their way.
            if type(error).__module__.split(".")[0] in ("click", "typer"):
                raise
            raise _exit(ctx, error, BUG) from None


def _exit(ctx: Any, error: BaseException, code: int) -> typer.Exit:
    """One line for the user; all of it with --debug."""
    if ctx.obj and ctx.obj.get("debug"):
        traceback.print_exception(error)
    text = " ".join(str(error).split()) or "stopped"
    name = "Stopped" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    hint = "" if code != BUG else " (not foreseen: --debug shows where)"
    print(f"{name}: {text}{hint}", file=sys.stderr)
    return typer.Exit(code)


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_show_locals=False, epilog=EXIT_CODES)
app.command()(learn)
app.command()(adapt)
app.command()(ask)
app.command()(predict)
app.command()(evaluate)
app.command()(certify)
app.command()(audit)
app.add_typer(prior.app, name="prior")
app.add_typer(data.app, name="data")


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
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")] = False,
) -> None:
    """Structured Gaussians over network weights, learned on one task and handed down to the next."""


__all__ = ["app"]
