"""Commands of other packages come in by entry points; those of the studies say how to get them where they are not."""

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest
import typer
from typer.testing import CliRunner

from posterity.cli import app, extensions


def call(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.fixture
def installed(monkeypatch):
    """Sets which entry points there are."""

    def those(*points):
        monkeypatch.setattr(extensions, "entry_points", lambda **chosen: EntryPoints(points).select(**chosen))

    return those


@pytest.mark.parametrize("arguments", [["study"], ["study", "run", "x", "--preset", "cpu"], ["demo", "--help"]])
def test_without_the_studies_one_line_says_how_to_install_them(installed, arguments):
    installed()
    result = call(*arguments)
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert "pip install posterity-studies" in result.output


def test_help_lists_what_is_known_and_what_is_installed(installed):
    installed(EntryPoint("greet", "test_extensions:greeting", extensions.GROUP))
    output = call("--help").output
    for name in ("audit", "certify", "prior", "study", "demo", "greet"):
        assert name in output


def test_a_package_brings_its_command(installed):
    installed(EntryPoint("greet", "test_extensions:greeting", extensions.GROUP))
    assert call("greet", "Ada").output == "Hello Ada\n"


def test_an_unknown_command_stays_unknown(installed):
    installed()
    assert call("no-such").exit_code == 2
    assert "No such command" in call("no-such").output


def test_certify_starts_without_the_studies():
    code = (
        "import sys; from posterity.cli import app; from typer.testing import CliRunner;"
        "assert CliRunner().invoke(app, ['certify', '--help']).exit_code == 0;"
        "sys.exit('posterity_studies' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


greeting = typer.Typer()


@greeting.command()
def greet(name: str) -> None:
    typer.echo(f"Hello {name}")
