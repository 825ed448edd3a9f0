"""An estimate that is cut short and taken up again ends with the result of one that was not."""

from __future__ import annotations

import pytest
import torch
from curvature_cases import case, data

from posterity.curvature import EKFAC, KFAC, KFOC, Diagonal, ExactLabels, OwnFrame, estimate, partial
from posterity.errors import BadCheckpoint, MissingFolder

ESTIMATORS = {
    "KFAC": KFAC(),
    "KFAC reduce": KFAC(sharing="reduce"),
    "KFAC exact": KFAC(ExactLabels()),
    "KFOC": KFOC(),
    "KFOC exact": KFOC(ExactLabels()),
    "EKFAC": EKFAC(),
    "Framed": OwnFrame(examples=3),
    "Diagonal": Diagonal(),
}
BATCHES = 4


@pytest.fixture(autouse=True)
def at_every_batch(monkeypatch):
    monkeypatch.setattr(partial, "SECONDS", 0.0)
    monkeypatch.setattr(partial, "RATIO", 0)


class Cut(Exception):
    """What stops an estimate here."""


class CutShort:
    """Batches of two examples, with an error before one of them, counted over all passes."""

    def __init__(self, name: str, stop: int | None, change: float = 0.0) -> None:
        self.x, self.y = data(name, n=2 * BATCHES)
        self.x = self.x + change
        self.stop, self.given = stop, 0

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self):
        for i in range(BATCHES):
            if self.given == self.stop:
                raise Cut
            self.given += 1
            yield self.x[2 * i : 2 * i + 2], self.y[2 * i : 2 * i + 2]


def run(name, estimator, path, stop=None, change=0.0, seed=0):
    model = case(name, n=2 * BATCHES).model
    generator = torch.Generator().manual_seed(seed)
    batches = CutShort(name, stop, change)
    return estimate(model, batches, estimator, generator=generator, checkpoint=path, progress=False)


@pytest.mark.parametrize(
    ("label", "stop"), [*((label, stop) for label in ESTIMATORS for stop in (1, 3)), ("EKFAC", BATCHES + 1)]
)
def test_a_resumed_estimate_is_the_same_to_the_bit(label, stop, tmp_path):
    estimator, path = ESTIMATORS[label], tmp_path / "sums"
    whole = run("conv", estimator, None)
    with pytest.raises(Cut):
        run("conv", estimator, path, stop)
    assert path.exists()
    found = run("conv", estimator, path, seed=7)  # the labels that were drawn are in the file
    assert not path.exists()
    assert (found.nll, found.count, found.at) == (whole.nll, whole.count, whole.at)
    assert found.provenance == whole.provenance
    for block, matrix in whole.blocks.items():
        assert torch.equal(found[block].dense(), matrix.dense()), block


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"change": 1.0}, "other data"),
        ({"estimator": KFAC(ExactLabels())}, "the estimator was"),
        ({"name": "mlp"}, "the weights' digest was"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(other, says, tmp_path):
    path = tmp_path / "sums"
    with pytest.raises(Cut):
        run("conv", KFAC(), path, 2)
    before = path.read_bytes()
    with pytest.raises(BadCheckpoint, match=says):
        run(**{"name": "conv", "estimator": KFAC(), "path": path} | other)
    assert path.read_bytes() == before


def test_fewer_batches_than_the_checkpoint_has_are_refused(tmp_path):
    path = tmp_path / "sums"
    with pytest.raises(Cut):
        run("conv", KFAC(), path, 3)
    x, y = data("conv", n=2 * BATCHES)
    model = case("conv", n=2 * BATCHES).model
    with pytest.raises(BadCheckpoint, match="3 batches and the data has 2"):
        estimate(model, [(x[:2], y[:2]), (x[2:4], y[2:4])], KFAC(), checkpoint=path, progress=False)


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = tmp_path / "sums"
    with pytest.raises(Cut):
        run("conv", KFAC(), path, 2)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadCheckpoint, match="remove it to start again"):
        run("conv", KFAC(), path)


def test_a_folder_that_is_not_there_is_told_before_anything_runs(tmp_path):
    with pytest.raises(MissingFolder, match="make it first"):
        run("conv", KFAC(), tmp_path / "none" / "sums", 0)
