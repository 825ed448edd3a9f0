"""A few of the changed files, kills and full disks of `docs/reliability.md`: there are thousands by the commands there."""

from __future__ import annotations

import warnings

import pytest
from kill import through
from mutate import mutate
from readers import READERS


@pytest.mark.parametrize("reader", READERS)
def test_changed_files_load_or_fail_by_name(reader):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, wrong = mutate(reader, 40, seed=7)
    assert not wrong, wrong
    assert sum(found.values()) == 40
    assert len(found) > 1


@pytest.mark.parametrize("kind", ["save", "study"])
@pytest.mark.parametrize("full", [False, True], ids=["kills", "full disk"])
def test_what_is_on_disk_is_whole(kind, full):
    assert "whole every time" in through(kind, 2, full)
