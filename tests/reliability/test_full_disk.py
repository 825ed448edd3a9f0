"""Whatever is written, a disk that is full is `DiskFull`, and nothing is left behind."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from readers import QUICK, data, network

import posterity as pt
from posterity.cli.data import split
from posterity.cli.output import write_page
from posterity.cli.using import write_predictions
from posterity.errors import DiskFull

resource = pytest.importorskip("resource", reason="there are no limits for files here")

ROOM = 600
"""Bytes to which a file may grow: fewer than any of those below needs."""


@contextmanager
def full():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def certificate(folder: Path):
    prior = pt.isotropic(model := network())
    made = pt.certify(model, prior, prior, data(), passes=2, progress=False)
    return lambda: made.save(folder / "c.json")


def checkpoint(folder: Path):
    return lambda: pt.train(network(), data(), checkpoint=folder / "run.pt", progress=False, **QUICK)


def prior(folder: Path):
    return lambda: pt.isotropic(network()).save(folder / "prior.safetensors")


def fit(folder: Path):
    made = pt.learn(network(), data(), training=QUICK, progress=False)
    return lambda: made.save(folder / "letters.fit")


def estimator(folder: Path):
    pytest.importorskip("sklearn")
    made = pt.PosteriorClassifier(hidden_sizes=(4,), training=QUICK).fit(*(t.numpy() for t in data()))
    return lambda: made.save(folder / "letters.fit")


def page(folder: Path):
    return lambda: write_page(folder / "p.html", lambda: "<p>" * ROOM)


def predictions(suffix: str):
    def make(folder: Path):
        probs = torch.full((ROOM, 2), 0.5)
        made = pt.Prediction(probs, torch.zeros(ROOM), torch.zeros(ROOM), pt.Categorical(), None, None, None)
        names = [str(i) for i in range(ROOM)]
        return lambda: write_predictions(folder / f"p{suffix}", names, made, ("a", "b"))

    return make


def parts(suffix: str):
    def make(folder: Path):
        source = folder / f"all{suffix}"
        if suffix == ".csv":
            source.write_text("a,b\n" + "1,2\n" * ROOM)
        else:
            np.savez(source, x=np.zeros((ROOM, 2)), y=np.zeros(ROOM))
        return lambda: split(str(source), folder / f"1{suffix}", folder / f"2{suffix}", share=0.5)

    return make


WRITERS = {
    "certificate": certificate,
    "checkpoint": checkpoint,
    "prior": prior,
    "fit": fit,
    "estimator": estimator,
    "page": page,
    "predictions as csv": predictions(".csv"),
    "predictions as npz": predictions(".npz"),
    "parts of a table": parts(".csv"),
    "parts of arrays": parts(".npz"),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_has_its_name_and_leaves_nothing(tmp_path, kind):
    write = WRITERS[kind](tmp_path)
    before = sorted(tmp_path.iterdir())
    with full(), pytest.raises(DiskFull, match="make room"):
        write()
    assert sorted(tmp_path.iterdir()) == before
