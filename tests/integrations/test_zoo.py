"""The priors of the zoo are what the list says, and the page shows the list."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import posterity as pt
from posterity import zoo
from posterity.cli import app
from posterity.errors import DamagedFile, MissingFile, UnknownNetwork

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERITY_ZOO", str(tmp_path))
    return tmp_path


def test_the_watch_is_in_the_package_and_small(empty):
    prior, entry = pt.zoo.load("watch"), zoo.find("watch")
    assert entry.path.stat().st_size == entry.size < 2**20
    assert len(prior.card.classes) == 7
    assert prior.card.licence
    assert "ten wearers" in prior.card.text
    assert prior.size == 29_143


def test_a_prior_that_is_not_here_says_how_it_is_made(empty):
    with pytest.raises(MissingFile, match=r"python -m posterity_studies\.zoo resnet50-head"):
        zoo.load("resnet50-head")
    (empty / "resnet50-head.safetensors").write_bytes(zoo.find("watch").path.read_bytes())
    with pytest.raises(DamagedFile, match="another prior"):
        zoo.load("resnet50-head")
    with pytest.raises(UnknownNetwork, match=r"choose one of .*watch"):
        zoo.find("dog")


def test_every_entry_is_complete_and_on_the_page(empty):
    text = PAGE.read_text(encoding="utf-8")
    for entry in zoo.entries():
        assert len(entry.sha256) == 64
        assert 0 < entry.size <= 50 * 2**20
        for part in (entry.name, entry.sha256, entry.make, entry.licence, entry.seen, entry.gained, entry.network):
            assert part in text, part
        if entry.path.is_file():
            assert hashlib.sha256(entry.path.read_bytes()).hexdigest() == entry.sha256


def test_the_command_lists_them(empty):
    shown = CliRunner().invoke(app, ["prior", "zoo"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert all(entry.name in shown.output for entry in zoo.entries())
