"""Every file that posterity reads: how a good one is made, how it is changed, and how it is read."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "gaussian")]

import data_readers as of_data
import fit_readers as of_fits
from crafting import with_header
from forging import changed_file
from mutations import accident, edited

import posterity as pt
from posterity import files
from posterity.cli.reading import read

QUICK = {"epochs": 1, "lr": 0.05, "batch_size": 16}


def data(n: int = 24, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator), torch.randint(2, (n,), generator=generator)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@dataclass(frozen=True)
class Reader:
    """`make` leaves good files in a folder, `change` changes one of them, `read` reads them and may raise."""

    make: Callable[[Path], None]
    change: Callable[[Path, random.Random], None]
    read: Callable[[Path], Any]
    needs: str | None = None
    """A package that is not always there."""


# --- prior -----------------------------------------------------------------------------------------


def make_prior(folder: Path) -> None:
    pt.learn(network(), data(), training=QUICK, progress=False).posterior.save(folder / "prior.safetensors")


def change_prior(folder: Path, chance: random.Random) -> None:
    path = folder / "prior.safetensors"
    path.write_bytes(changed_file(path.read_bytes(), chance))


def read_prior(folder: Path) -> None:
    from typer.testing import CliRunner

    from posterity.cli import app

    path = folder / "prior.safetensors"
    prior = pt.load(path)
    found = CliRunner().invoke(app, ["prior", "inspect", str(path)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    model = network()
    pt.certify(model, prior, prior, data(8, 1), progress=False, vouched="a test")


# --- learner ---------------------------------------------------------------------------------------


def make_learner(folder: Path) -> None:
    learner = pt.BPNN(network(), pt.isotropic(network()), ["0"], "2", training=QUICK, scales=pt.Scales())
    learner.learn(pt.Task("a", data(), data(8, 1), None, 2), progress=False)
    learner.save(folder / "learner")


def change_learner(folder: Path, chance: random.Random) -> None:
    page = folder / "learner" / "learner.safetensors"
    path = chance.choice([page, page.with_name("column-000.safetensors")])
    path.write_bytes(changed_file(path.read_bytes(), chance))
    if path != page and chance.random() < 0.8:  # forged: the learner's file names it as it is now
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        page.write_bytes(with_header(page.read_bytes(), lambda told: told["columns"][0].update(sha256=digest)))


def read_learner(folder: Path) -> None:
    learner = pt.BPNN.load(folder / "learner", network())
    for task in learner.tasks:
        learner.predict(data(4)[0], task, samples=2)


# --- certificate -----------------------------------------------------------------------------------


def make_certificate(folder: Path) -> None:
    model = network()
    prior = pt.isotropic(model)
    posteriors = {"a": prior, "b": prior.tempered(0.5)}
    for name, posterior in posteriors.items():
        pt.certify(model, posterior, prior, data(), passes=2, progress=False).save(folder / f"{name}.json")
    pt.certify(model, posteriors["b"], prior, data(), passes=2, methods=["excess"], progress=False).save(
        folder / "c.json"
    )


def change_certificate(folder: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(folder.glob("*.json")))
    for other in set(folder.glob("*.json")) - {path}:
        other.unlink()
    if chance.random() < 0.7:
        path.write_text(json.dumps(edited(json.loads(path.read_text()), chance)))
    else:
        path.write_bytes(accident(path.read_bytes(), chance))


def read_certificate(folder: Path) -> None:
    from typer.testing import CliRunner

    from posterity.cli import app

    for path in sorted(folder.glob("*.json")):
        found = CliRunner().invoke(app, ["audit", str(path)])
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        if found.exit_code:
            raise pt.PosterityError(found.output)
        if "\x1b" in found.output:
            raise AssertionError("a terminal escape passed through")


# --- arrays ----------------------------------------------------------------------------------------


def make_npz(folder: Path) -> None:
    x, y = data()
    np.savez(folder / "plain.npz", x=x.numpy(), y=y.numpy())
    np.savez_compressed(folder / "packed.npz", x=x.numpy(), y=y.numpy())


def change_npz(folder: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(folder.glob("*.npz")))
    if chance.random() < 0.25:
        x, y = data()
        odd: list[Any] = [
            y.double().numpy() + 0.5,
            y.numpy()[:3],
            y.numpy().astype(str),
            np.zeros((24, 2)),
            y.numpy() * 1j,
        ]
        np.savez(path, x=x.numpy(), y=chance.choice(odd))
        return
    path.write_bytes(accident(path.read_bytes(), chance))


def read_npz(folder: Path) -> None:
    for path in sorted(folder.glob("*.npz")):
        found = read(str(path))
        assert len(found.x) == len(found.pair[1])


# --- checkpoint ------------------------------------------------------------------------------------


def make_checkpoint(folder: Path) -> None:
    torch.manual_seed(0)
    pt.train(network(), data(), checkpoint=folder / "run.pt", progress=False, **QUICK)


def change_checkpoint(folder: Path, chance: random.Random) -> None:
    path = folder / "run.pt"
    content = path.read_bytes()
    head = len(files.SEAL) + 32
    match chance.randrange(3):
        case 0:
            path.write_bytes(accident(content, chance))
        case 1:
            inner = accident(content[head:], chance)
            path.write_bytes(files.SEAL + hashlib.sha256(inner).digest() + inner)
        case _:
            state = torch.load(io.BytesIO(content[head:]), weights_only=True)
            where, key = _spot(state, chance)
            where[key] = chance.choice([None, -1, 2.5, "x", [], {}, torch.zeros(3), torch.tensor(7), 10**9])
            try:
                files.write_state(path, state)
            except (pickle.PicklingError, TypeError, AttributeError):
                path.write_bytes(content[:-1])


def _spot(state: Any, chance: random.Random) -> tuple[Any, Any]:
    spots: list[tuple[Any, Any]] = []

    def walk(at: Any) -> None:
        for key in list(at) if isinstance(at, dict) else range(len(at)):
            spots.append((at, key))
            if isinstance(at[key], (dict, list)):
                walk(at[key])

    walk(state)
    return chance.choice(spots)


def read_checkpoint(folder: Path) -> None:
    pt.train(network(), data(), checkpoint=folder / "run.pt", progress=False, **QUICK | {"epochs": 2})


# --- results file ----------------------------------------------------------------------------------


def make_ledger(folder: Path) -> None:
    from posterity_studies.engine.declaration import Record
    from posterity_studies.engine.ledger import Ledger

    book = Ledger(folder / "toy.jsonl")
    with book.writing():
        for k in range(4):
            book.append(Record("toy", f"key {k}", {"seed": k}, {"value": 0.5 * k}, 1.0, {"torch": "2"}))


def change_ledger(folder: Path, chance: random.Random) -> None:
    path = folder / "toy.jsonl"
    if chance.random() < 0.5:
        lines = path.read_text().splitlines()
        k = chance.randrange(len(lines))
        lines[k] = json.dumps(edited(json.loads(lines[k]), chance))
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_bytes(accident(path.read_bytes(), chance))


def read_ledger(folder: Path) -> None:
    from posterity_studies.engine.ledger import Ledger

    book = Ledger(folder / "toy.jsonl")
    with book.writing():
        assert all(isinstance(key, str) for key in book.records)


READERS = {
    "prior": Reader(make_prior, change_prior, read_prior),
    "learner": Reader(make_learner, change_learner, read_learner),
    "certificate": Reader(make_certificate, change_certificate, read_certificate),
    "npz": Reader(make_npz, change_npz, read_npz),
    "checkpoint": Reader(make_checkpoint, change_checkpoint, read_checkpoint),
    "ledger": Reader(make_ledger, change_ledger, read_ledger),
    "csv": Reader(of_data.make_csv, of_data.change_csv, of_data.read_tables),
    "parquet": Reader(of_data.make_parquet, of_data.change_bytes, of_data.read_tables, "pyarrow"),
    "idx": Reader(of_data.make_idx, of_data.change_idx, of_data.read_idx),
    "images": Reader(of_data.make_images, of_data.change_images, of_data.read_images, "PIL"),
    "hugging_face": Reader(of_data.make_hugging_face, of_data.change_bytes, of_data.read_hugging_face, "datasets"),
    "fit": Reader(of_fits.make_fits, of_fits.change, of_fits.read_fits),
    "estimator": Reader(of_fits.make_estimators, of_fits.change, of_fits.read_estimators, "sklearn"),
}


def again(good: Path, folder: Path) -> None:
    """The folder with good files in it, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder)
