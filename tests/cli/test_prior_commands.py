"""`posterity prior inspect` shows what is in a file, and a bad file is a message."""

import sys
from pathlib import Path

import pytest
import torch
from commands import answer, call, table
from typer.testing import CliRunner

from posterity.cli import app
from posterity.cli.reading import ReadOptions, read
from posterity.cli.saved import manifest_of, open_saved

sys.path.insert(0, str(Path(__file__).parent.parent / "gaussian"))
from gaussians import CARD, EVERY, every, gaussian, one
from matrices import pair, singular_pair

import posterity as pt


def inspect(path, columns=80):
    return CliRunner().invoke(app, ["prior", "inspect", str(path)], env={"COLUMNS": str(columns)})


def test_a_prior_is_shown_with_its_story_and_every_block(tmp_path):
    path = tmp_path / "digits.safetensors"
    gaussian(every(3, 4), card=CARD).save(path)
    result = inspect(path)
    assert result.exit_code == 0, result.output
    for part in (
        "digits.safetensors",
        "Ten digits",
        "Apache-2.0",
        "60,000 examples",
        "1e-08",
        "Categorical()",
        "KFOC()",
        "f00f",
        CARD.source,
        "torch 2.9",
        "5 examples, and unknown: it was trained elsewhere",
        f"posterity {pt.__version__}",
        f"{len(EVERY) * 12} in {len(EVERY)} blocks",
        "kB",
        "KroneckerSum of 3",
        "0.333",
        "1.3e-03",
    ):
        assert part in result.output
    for name in every():
        assert name in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_numbers_of_a_block_are_its_own(tmp_path):
    g = one("kronecker", 3)
    g.save(tmp_path / "a")
    output, matrix = inspect(tmp_path / "a").output, g.precision["block"]
    values = torch.linalg.eigvalsh(matrix.dense())
    for number in (g.mean["block"].norm(), matrix.trace(), values[0], values[-1], values[-1] / values[0]):
        assert f"{float(number):.3g}" in output
    assert f"{float(matrix.logdet()):.5g}" in output
    assert "█" in output


def test_an_estimate_is_marked_as_one(tmp_path):
    gaussian({"b": pair(30, 40, 0) + pair(30, 40, 1)}).save(tmp_path / "a")
    result = inspect(tmp_path / "a")
    assert "≈" in result.output
    assert "Lanczos" in result.output


def test_a_singular_precision_is_shown_with_a_note(tmp_path):
    gaussian({"bad": singular_pair(3, 4, 0), "good": pair(2, 2, 0)}).save(tmp_path / "a")
    result = inspect(tmp_path / "a")
    assert result.exit_code == 0
    assert "bad: Kronecker.left (3×3) is not positive definite" in result.output


def test_a_strangers_words_are_no_commands_to_the_terminal(tmp_path):
    card = pt.gaussian.Card(text="\x1b[2J[bold]loud[/bold]\u202e\ud800", licence="[link=http://x]MIT[/link]")
    gaussian({"[red]\x1b]0;title\x07": pair(2, 2, 0)}, card=card).save(tmp_path / "a")
    result = inspect(tmp_path / "a")
    assert result.exit_code == 0, result.exception
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    for words in ("[bold]loud[/bold]", "[link=http://x]MIT[/link]", "[red]\\x1b"):
        assert words in result.output


@pytest.mark.parametrize(
    ("content", "name"), [(None, "MissingFile"), (b"hello, world", "NotAPrior"), ("cut", "DamagedFile")]
)
def test_a_bad_file_is_a_message_and_not_a_traceback(tmp_path, content, name):
    path = tmp_path / "bad.safetensors"
    if content == "cut":
        one("dense").save(path)
        content = path.read_bytes()[:-5]
    if content:
        path.write_bytes(content)
    result = inspect(path, 200)
    assert result.exit_code == 1
    assert result.output.startswith(f"{name}: ")
    assert "bad.safetensors" in result.output
    assert "Traceback" not in result.output


def test_the_limit_is_an_option(tmp_path):
    one("dense").save(tmp_path / "a")
    result = CliRunner().invoke(app, ["prior", "inspect", str(tmp_path / "a"), "--limit", "10"])
    assert result.exit_code == 1
    assert "OversizedFile" in result.output


def test_the_recipe_of_its_data_travels_with_a_prior_alone_and_is_used(tmp_path):
    source = table(tmp_path / "all.csv", 40, words=True)
    call("prior", "learn", source, "--target", "kind", "--epochs", 2, "--out", tmp_path / "prior", "--quiet")
    alone = tmp_path / "prior"
    recipe = manifest_of(pt.load(alone).card).recipe
    assert recipe == read(str(source), ReadOptions(target="kind")).recipe
    assert answer("prior", "inspect", alone)["card"]["columns"] == "age, height, weight"
    # The table less one row has another mean: read by itself, none of its rows would be those that were learned from.
    header, *rows = source.read_text().splitlines()
    (tmp_path / "less.csv").write_text("\n".join([header, *rows[1:]]))
    seen = call("certify", alone, tmp_path / "less.csv", "--network", "mlp", "--quiet", code=3).stderr
    assert seen.splitlines()[-1].startswith("Overlap: ")
    # And written again with one decimal: no number is the same.
    rounded = [",".join([*(f"{float(cell):.1f}" for cell in row.split(",")[:3]), row.split(",")[3]]) for row in rows]
    (tmp_path / "rounded.csv").write_text("\n".join([header, *rounded]))
    seen = call("certify", alone, tmp_path / "rounded.csv", "--network", "mlp", "--quiet", code=3).stderr
    assert "rows are, up to rounding, rows that the prior was learned from" in seen
    new = table(tmp_path / "new.csv", 40, seed=1, words=True)
    assert 0 < answer("certify", alone, new, "--network", "mlp", "--passes", 2, "--quiet")["bound"] <= 1
    adapted = answer("adapt", alone, new, "--network", "mlp", "--out", tmp_path / "fit", "--quiet")
    assert adapted["classes"] == ["old", "young"]
    assert open_saved(tmp_path / "fit").said.recipe == recipe
    again = call("evaluate", tmp_path / "fit", tmp_path / "rounded.csv", "--quiet").stdout
    assert "of these examples are among those learned from" in again
    assert "The bound on the error holds" not in again
