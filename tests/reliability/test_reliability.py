"""A few of the changed files, kills and full disks of `docs/reliability.md`: there are thousands by the commands there."""

from __future__ import annotations

import re
import warnings

import pytest
from kill import full, killed
from moments import available
from mutate import mutate
from readers import READERS
from writers import KINDS, Kind, fits

from posterity.gaussian.container import TensorEntry


@pytest.mark.parametrize("reader", READERS)
def test_changed_files_load_or_fail_by_name(reader):
    if READERS[reader].needs:
        pytest.importorskip(READERS[reader].needs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, wrong, _ = mutate(reader, 40, seed=7)
    assert not wrong, wrong
    assert sum(found.values()) == 40
    assert len(found) > 1


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_thousands_of_changed_files_load_or_fail_by_name(reader):
    if READERS[reader].needs:
        pytest.importorskip(READERS[reader].needs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, wrong, _ = mutate(reader, 2500, seed=1)
    assert not wrong, wrong
    assert sum(found.values()) == 2500


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fit", "estimator"])
def test_fifty_kills_leave_the_old_file_or_the_new_one(kind):
    if not available():
        pytest.skip("no process may trace its child here (Linux on x86-64 does)")
    assert "50 kills at 50 moments" in killed(kind, 50)


@pytest.mark.parametrize("kind", ["save", "fit", "study"])
def test_what_a_kill_leaves_is_what_was_finished(kind):
    if not available():
        pytest.skip("no process may trace its child here (Linux on x86-64 does)")
    assert "6 kills at 6 moments" in killed(kind, 6)


def test_kills_at_other_moments_leave_other_folders():
    if not available():
        pytest.skip("no process may trace its child here (Linux on x86-64 does)")
    kills, folders = (int(n) for n in re.findall(r"(\d+) (?:kills|different)", killed("save", 12)))
    assert kills == 12
    assert folders >= 8


def test_a_write_in_place_would_be_caught(monkeypatch):
    """Files written without a draft: some kill leaves half of one, and the check says so."""
    if not available():
        pytest.skip("no process may trace its child here (Linux on x86-64 does)")

    def in_place(folder):
        for k in range(3):
            (folder / "toy").write_text(f"{k} " * 1000)

    def check(folder):
        path = folder / "toy"
        words = path.read_text().split() if path.exists() else []
        assert not words or words == [words[0]] * 1000, "half a file"
        return 0 if not words else int(words[0]) + 1

    monkeypatch.setitem(KINDS, "in place", Kind(in_place, check, ("write", 1), 3))
    with pytest.raises(AssertionError):
        killed("in place", 20)


@pytest.mark.parametrize("kind", ["save", "fit", "study"])
def test_a_full_disk_is_told_and_leaves_what_was_there(kind):
    assert "4 full disks" in full(kind, 4)


@pytest.mark.parametrize("moment", [1, 3, 9])
def test_an_interrupted_save_leaves_the_old_fit(moment, tmp_path, monkeypatch):
    """Ctrl-C while the tensors are written."""
    old, new = fits()[:2]
    path = tmp_path / "letters.fit"
    old.save(path)
    before, content, calls = path.read_bytes(), TensorEntry.content, iter(range(1, 1000))

    def interrupted(entry):
        if next(calls) == moment:
            raise KeyboardInterrupt
        return content(entry)

    monkeypatch.setattr(TensorEntry, "content", interrupted)
    with pytest.raises(KeyboardInterrupt):
        new.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
