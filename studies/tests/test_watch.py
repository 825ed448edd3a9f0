"""The watch's recordings are read without running code from their file, and no window serves twice."""

import hashlib
import io
import pickle
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from posterity.errors import NoDataSet
from posterity_studies.shared import watch

HERE = pytest.mark.skipif(not find_spec("seglearn"), reason="the recordings come with posterity-studies[demo]")


def written(path, payload: bytes) -> str:
    """A `.npy` around a pickle; returns its sha256."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": ()})
    path.write_bytes(file.getvalue() + payload)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def miniature() -> bytes:
    """Two recordings, pickled the way the package's file is."""
    held = {
        "X": [np.arange(6.0 * n).reshape(n, 6) for n in (120, 130)],
        "subject": np.array([2, 1]),
        "y": np.array([0, 6]),
        "side": np.array([1.0, 0.0]),
    }
    # The name that older versions of numpy wrote, as the package's file has it.
    return pickle.dumps(np.array(held, dtype=object), protocol=2).replace(b"numpy._core", b"numpy.core")


def test_recordings_come_sorted_with_time_last(tmp_path):
    sha = written(tmp_path / "watch.npy", miniature())
    first, second = watch.read(tmp_path / "watch.npy", sha)
    assert (first.wearer, first.exercise, first.arm) == (1, 6, 0)
    assert (second.wearer, second.exercise, second.arm) == (2, 0, 1)
    assert second.signal.shape == (6, 120)
    assert second.signal[:, 1].tolist() == [6, 7, 8, 9, 10, 11]


def test_a_file_that_is_not_the_known_one_is_refused(tmp_path):
    written(tmp_path / "watch.npy", miniature())
    with pytest.raises(NoDataSet, match="sha256"):
        watch.read(tmp_path / "watch.npy")


class Intruder:
    def __reduce__(self):
        return print, ("this must never run",)


class Codec:
    """`_codecs.encode` reaches more than latin1, bytes-to-bytes codecs among it."""

    def __reduce__(self):
        import _codecs

        return _codecs.encode, ("text", "rot13")


@pytest.mark.parametrize("guest", [Intruder(), Codec(), np.ma.masked_array([1.0])])
def test_a_file_that_would_call_anything_else_is_refused_even_under_the_right_sha256(tmp_path, guest, capsys):
    sha = written(tmp_path / "watch.npy", pickle.dumps(np.array({"X": guest}, dtype=object), protocol=2))
    with pytest.raises(NoDataSet, match="it was not read"):
        watch.read(tmp_path / "watch.npy", sha)
    assert capsys.readouterr().out == ""


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(watch, "find_spec", lambda name: None)
    watch.recordings.cache_clear()
    with pytest.raises(NoDataSet, match="pip install"):
        watch.recordings()
    watch.recordings.cache_clear()


@HERE
def test_the_package_holds_ten_wearers_seven_exercises_and_both_arms_once_each():
    found = [(r.wearer, r.exercise, r.arm) for r in watch.recordings()]
    assert found == [(w, e, a) for w in watch.WEARERS for e in range(7) for a in range(2)]


@HERE
def test_nothing_shown_is_tested_and_nothing_of_the_new_wearer_or_the_unknown_exercise_is_in_the_source():
    meeting = watch.meet(3, unknown=5)

    def samples(x):
        """Every instant is told by its six numbers."""
        return {row.numpy().tobytes() for row in x.transpose(1, 2).reshape(-1, 6)}

    shown, test, strange = samples(meeting.shown(8).x), samples(meeting.test().x), samples(meeting.unfamiliar().x)
    source = samples(meeting.source().x)
    assert not shown & test
    assert not (shown | test | strange) & source
    others = torch.cat([r.signal for r in watch.recordings() if r.wearer != 3 and r.exercise == 5], 1)
    assert not samples(((others - meeting.mean) / meeting.deviation)[None]) & source


@HERE
def test_a_wearer_shows_so_many_seconds_of_each_known_exercise_and_arm():
    meeting = watch.meet(1, unknown=2)
    for seconds in (2, 4, 8):
        shown = meeting.shown(seconds)
        assert shown.y.bincount().tolist() == [seconds // 2 * 2] * 6
        assert shown.recording.bincount().tolist() == [seconds // 2] * 12
    assert "forward elevation" not in meeting.classes
    assert meeting.classes[2] == "internal rotation"


@HERE
def test_inputs_are_normalised_by_the_source_alone():
    x = watch.meet(4).source(stride=25).x
    assert x.mean((0, 2)).abs().max() < 0.05
    assert (x.std((0, 2)) - 1).abs().max() < 0.05
