"""The commands of docs/command-line.md run as they stand, one after the other, in a folder with the data they speak of."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from commands import call, images, table

PAGE = (Path(__file__).parents[2] / "docs/command-line.md").read_text(encoding="utf-8")


def blocks() -> list[list[str]]:
    return [block.strip().splitlines() for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_from_images_to_a_page(here):
    pytest.importorskip("PIL", reason="folders of images need Pillow")
    images(here / "digits", ["0", "1", "2"], 40, size=12)
    images(here / "letters", ["a", "b", "c"], 14, seed=1, size=12)
    for line in blocks()[0]:
        # Small images and a few epochs: what is tested is that the lines run.
        small = ["--size", "12", "--epochs", "3"] if line.startswith("posterity prior learn") else []
        call(*shlex.split(line)[1:], *small)
    assert (here / "evaluation.html").is_file()
    assert len((here / "predictions.csv").read_text().splitlines()) == 13


def test_from_a_table_to_predictions(here):
    table(here / "houses.csv", 40)
    table(here / "houses-test.csv", 10, seed=1)
    for line in blocks()[1]:
        call(*shlex.split(line)[1:], *(["--epochs", "20"] if " learn " in line else []))
    assert len((here / "prices.csv").read_text().splitlines()) == 11


def test_features_to_a_head_and_the_next_labels(here):
    chance = np.random.default_rng(0)
    y = np.arange(30) % 3
    x = np.eye(3, 8)[y] + 0.1 * chance.normal(size=(30, 8))
    np.save(here / "x.npy", x)
    np.save(here / "new.npy", x + 0.01)
    (here / "y.csv").write_text("label\n" + "".join(f"{'abc'[c]}\n" for c in y))
    for line in blocks()[2]:
        call(*shlex.split(line)[1:])
    assert len((here / "topics.csv").read_text().splitlines()) == 31
    assert len((here / "answers.csv").read_text().splitlines()) == 6


def test_every_option_and_exit_code_of_the_page_is_there():
    told = " ".join(
        call(*command, "--help").output for command in (["learn"], ["evaluate"], ["predict"], ["certify"], ["ask"], [])
    )
    for option in set(re.findall(r"--[a-z][a-z-]+", PAGE)) - {"--per-class"}:
        assert option in told, option
    from posterity.cli import BUG, NO_CERTIFICATE, REFUSED, STOPPED

    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert codes == {0, 2, REFUSED, NO_CERTIFICATE, BUG, STOPPED}
