"""A smartwatch on ten wrists: seven shoulder exercises, both arms, read from a PyPI package without running any of it.

The recordings are those of Burns et al., "Shoulder physiotherapy exercise recognition: machine learning the inertial signals from
a smartwatch" (Physiological Measurement, 2018). The package seglearn (BSD) carries ten wearers of it.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.errors import NoDataSet

SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
RATE = 50
"""Samples a second."""
WINDOW = 2 * RATE
"""Samples in a window, the recogniser's input: two seconds."""
CHANNELS = ("ax", "ay", "az", "wx", "wy", "wz")
"""Acceleration in g and turning rate in rad/s."""
EXERCISES = (
    "pendulum",
    "abduction",
    "forward elevation",
    "internal rotation",
    "external rotation",
    "trapezius row",
    "bent-over row",
)
WEARERS = tuple(range(1, 11))


@dataclass(frozen=True, eq=False)
class Recording:
    """One wearer doing one exercise with one arm, over and over, for 19 to 52 seconds."""

    wearer: int
    exercise: int
    arm: int
    signal: Float[Tensor, "6 time"]


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of some recordings, with their exercise and the recording they were cut from."""

    x: Float[Tensor, "n 6 window"]
    y: Int[Tensor, "n"]
    recording: Int[Tensor, "n"]

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        return self.x, self.y


@cache
def recordings() -> tuple[Recording, ...]:
    """All 140 recordings.

    Raises:
        NoDataSet: if seglearn is not installed, or its file is not the one that is known.
    """
    spec = find_spec("seglearn")  # finds the folder; imports nothing
    if spec is None or not spec.submodule_search_locations:
        raise NoDataSet("the watch's recordings come with seglearn, which is not here: pip install --no-deps seglearn.")
    return read(Path(next(iter(spec.submodule_search_locations))) / "data" / "watch_dataset.npy")


def read(path: Path, sha256: str = SHA256) -> tuple[Recording, ...]:
    """The recordings of a file that has this sha256."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise NoDataSet(f"{path} cannot be read ({error}): install seglearn 1.2.5 again.") from None
    if (found := hashlib.sha256(raw).hexdigest()) != sha256:
        raise NoDataSet(f"{path} has sha256 {found[:12]}…, not {sha256[:12]}…: install seglearn 1.2.5 again.")
    held = _plain(raw, path)
    rows = zip(held["subject"], held["y"], held["side"], held["X"], strict=True)
    made = (Recording(int(w), int(e), int(a), torch.from_numpy(x).float().T.contiguous()) for w, e, a, x in rows)
    return tuple(sorted(made, key=lambda r: (r.wearer, r.exercise, r.arm)))


def windows(
    chosen: Sequence[Recording], stride: int = WINDOW, start: float = 0.0, samples: int | None = None
) -> Windows:
    """Cut recordings into windows: from a share `start` of each on, `samples` long or to the end.

    With the default stride no two windows overlap.
    """
    x, y, origin = [], [], []
    for number, recording in enumerate(chosen):
        begin = int(start * recording.signal.shape[1])
        part = recording.signal[:, begin : None if samples is None else begin + samples]
        cut = part.unfold(1, WINDOW, stride).transpose(0, 1)
        x.append(cut)
        y.append(torch.full((len(cut),), recording.exercise))
        origin.append(torch.full((len(cut),), number))
    return Windows(torch.cat(x), torch.cat(y), torch.cat(origin))


@dataclass(frozen=True, eq=False)
class Meeting:
    """A recogniser learned from nine people meets a tenth; one exercise is kept from everybody.

    The new wearer shows the first seconds of each recording; the second half of each is for testing. Inputs are
    normalised by the nine alone. Labels count the known exercises from 0.
    """

    wearer: int
    unknown: int
    mean: Float[Tensor, "6 1"]
    deviation: Float[Tensor, "6 1"]

    @property
    def classes(self) -> tuple[str, ...]:
        """The known exercises."""
        return tuple(name for number, name in enumerate(EXERCISES) if number != self.unknown)

    def source(self, stride: int = WINDOW) -> Windows:
        """What the nine others did."""
        return self._cut([r for r in _known(self.unknown) if r.wearer != self.wearer], stride)

    def shown(self, seconds: float) -> Windows:
        """The first seconds of each exercise and arm of the new wearer: the only labels there are of them."""
        return self._cut(self.own, samples=round(seconds * RATE))

    def test(self, stride: int = WINDOW) -> Windows:
        """The second half of each of the new wearer's recordings; with a shorter stride windows overlap one another."""
        return self._cut(self.own, stride, start=0.5)

    def unfamiliar(self) -> Windows:
        """The second half of the exercise that no one ever showed. Its labels mean nothing."""
        return self._cut([r for r in self._all if r.exercise == self.unknown], start=0.5)

    @property
    def own(self) -> list[Recording]:
        """The new wearer's recordings of known exercises."""
        return [r for r in self._all if r.exercise != self.unknown]

    @property
    def _all(self) -> list[Recording]:
        return [r for r in recordings() if r.wearer == self.wearer]

    def _cut(
        self, chosen: Sequence[Recording], stride: int = WINDOW, start: float = 0.0, samples: int | None = None
    ) -> Windows:
        cut = windows(chosen, stride, start, samples)
        return Windows((cut.x - self.mean) / self.deviation, cut.y - (cut.y > self.unknown).long(), cut.recording)


def meet(wearer: int, unknown: int = 6) -> Meeting:
    """The meeting with one wearer, normalised by the other nine."""
    others = torch.cat([r.signal for r in _known(unknown) if r.wearer != wearer], 1)
    return Meeting(wearer, unknown, others.mean(1, keepdim=True), others.std(1, keepdim=True))


def _known(unknown: int) -> list[Recording]:
    return [r for r in recordings() if r.exercise != unknown]


def _plain(raw: bytes, path: Path) -> dict[str, Any]:
    """The dictionary inside a pickled `.npy`, if it is made of numpy arrays and Python's own containers only."""
    file = io.BytesIO(raw)
    if np.lib.format.read_magic(file) != (1, 0):
        raise NoDataSet(f"{path} is another version of numpy's format than 1.0, which seglearn 1.2.5 has.")
    np.lib.format.read_array_header_1_0(file)
    held = _Unpickler(file).load()
    return dict(held.item())


class _Unpickler(pickle.Unpickler):
    """Pickles name functions to be called. Only those that numpy arrays consist of are known here."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("numpy", "dtype"): np.dtype,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy.core.multiarray", "_reconstruct"): _empty,
            ("_codecs", "encode"): _latin1,
        }
        try:
            return known[module, name]
        except KeyError:
            raise NoDataSet(
                f"the file would call {module}.{name}, which no plain array needs: it was not read."
            ) from None


def _empty(kind: type, shape: tuple[int, ...], code: bytes) -> Any:
    """An array to be filled, as numpy's own function makes it, and of numpy's own type only."""
    if kind is not np.ndarray:
        raise NoDataSet(f"the file holds a {kind}, not a plain array: it was not read.")
    return np.ndarray(shape, np.dtype(code.decode()))


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 2's bytes are written down."""
    if encoding != "latin1":
        raise NoDataSet(f"the file holds bytes written as {encoding}, not latin1: it was not read.")
    return text.encode("latin1")
