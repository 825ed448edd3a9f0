"""What posterity writes, in a fixed order of changes: for a process to be killed at one of them, or to run out of disk.

Each kind has a `work` that writes into a folder, going on from what is there, and a `check` that what is there is whole. `check`
returns how many steps of the work are there, so that it can be held against how many were finished.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import posterity as pt
from posterity.files import read_state
from posterity.gaussian.bundle import read_bundle
from posterity_studies.engine.declaration import Record
from posterity_studies.engine.ledger import Ledger

EPOCHS, SAVES, COLUMNS, RESULTS = 8, 7, 3, 20


@dataclass(frozen=True)
class Kind:
    """One way of writing."""

    work: Callable[[Path], Any]
    check: Callable[[Path], int]
    ends_a_step: tuple[str, int]
    """The change by which a step is there, and how many of them a step has."""
    steps: int


def data(n: int = 200, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 8, generator=generator), torch.randint(2, (n,), generator=generator)


def network(width: int = 64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 2))


def train(folder: Path) -> Any:
    """A training run that goes on where the last one stopped."""
    model = network()
    options = {"epochs": EPOCHS, "lr": 0.01, "batch_size": 32, "stop_after": EPOCHS, "average": 3, "progress": False}
    dice = torch.Generator().manual_seed(0)
    history = pt.train(model, data(), checkpoint=folder / "run.pt", generator=dice, validation=None, **options)
    return history, model


@cache
def trained() -> Any:
    """The run that nothing interrupts."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        return train(Path(place))


def check_train(folder: Path) -> int:
    """The epochs that are there are those of the run that nothing interrupts, and going on ends with its bits."""
    epochs = len(read_state(folder / "run.pt")["epochs"]) if (folder / "run.pt").exists() else 0
    history, model = train(folder)
    straight, same = trained()
    assert repr(history.epochs) == repr(straight.epochs), "it did not go on to the same numbers"
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), same.parameters(), strict=True))
    return epochs


@cache
def priors() -> list[pt.Gaussian]:
    """Each larger than the one before: a disk may have room for some."""
    return [pt.isotropic(network(64 + 16 * k), float(k + 1)) for k in range(SAVES)]


def save(folder: Path) -> None:
    """One prior after the other, in the same file."""
    for prior in priors():
        prior.save(folder / "prior.safetensors")


def check_save(folder: Path) -> int:
    path = folder / "prior.safetensors"
    if not path.exists():
        return 0
    found = pt.load(path)
    number = next(k for k, prior in enumerate(priors(), 1) if prior.fingerprint() == found.fingerprint())
    assert found.card.precision == number
    return number


@cache
def fits() -> list[pt.Fit]:
    """Of more and more examples, which are in the file: each larger than the one before."""
    source = pt.learn(network(8), data(40, 9), training={"epochs": 1}, progress=False).posterior
    return [pt.adapt(network(8), data(8 * (k + 1), k), source, progress=False) for k in range(SAVES)]


def save_fits(folder: Path) -> None:
    """One fit after the other, in the same file."""
    for fit in fits():
        fit.save(folder / "letters.fit")


def check_fits(folder: Path) -> int:
    path = folder / "letters.fit"
    if not path.exists():
        return 0
    found, x = pt.load(path, network(8)), data(4, 99)[0]
    number = found.examples.count // 8
    assert torch.equal(found.predict(x).probs, fits()[number - 1].predict(x).probs), "it predicts otherwise"
    return number


@cache
def estimators() -> list[Any]:
    options = {"hidden_sizes": (4,), "training": {"epochs": 1}, "random_state": 0}
    return [pt.PosteriorClassifier(**options).fit(*(t.numpy() for t in data(10 * (k + 1)))) for k in range(SAVES)]


def save_estimators(folder: Path) -> None:
    for estimator in estimators():
        estimator.save(folder / "letters.fit", overwrite=True)


def check_estimators(folder: Path) -> int:
    path = folder / "letters.fit"
    if not path.exists():
        return 0
    found, x = pt.PosteriorClassifier.load(path), data(4, 99)[0].numpy()
    number = found.fit_.curvature.count // 10
    assert (found.predict_proba(x) == estimators()[number - 1].predict_proba(x)).all(), "it predicts otherwise"
    return number


@cache
def learners() -> list[pt.BPNN]:
    """The same learner with one column, two, and so on."""
    options: dict[str, Any] = {"training": {"epochs": 1, "lr": 0.05, "batch_size": 64}, "scales": pt.Scales()}
    growing = pt.BPNN(network(), pt.isotropic(network()), ["0"], "2", **options)
    stages = []
    for k in range(COLUMNS):
        growing.learn(pt.Task(f"task {k}", data(40, k), None, None, 2), progress=False)
        stages.append(copy.deepcopy(growing))
    return stages


def learner(folder: Path) -> None:
    """A learner that is saved after every column, from the first that is not there."""
    page = folder / "learner" / "learner.safetensors"
    done = len(read_bundle(page).raw["columns"]) if page.exists() else 0
    for stage in learners()[done:]:
        stage.save(folder / "learner")


def check_learner(folder: Path) -> int:
    if not (folder / "learner" / "learner.safetensors").exists():
        return 0
    found = pt.BPNN.load(folder / "learner", network())
    kept = learners()[len(found.tasks) - 1]
    for task in found.tasks:
        first, second = (one.predict(data(4)[0], task, samples=2, generator=dice()) for one in (found, kept))
        assert torch.equal(first.probs, second.probs), "it predicts otherwise"
    return len(found.tasks)


def dice() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def record(k: int) -> Record:
    return Record("toy", f"key {k}", {"seed": k}, {"value": k, "text": "x" * 2000}, 1.0, {"torch": "2"})


def study(folder: Path) -> None:
    """Cells that are not in the results file yet."""
    book = Ledger(folder / "toy.jsonl")
    with book.writing():
        for k in range(RESULTS):
            if f"key {k}" not in book.records:
                book.append(record(k))


def check_study(folder: Path) -> int:
    book = Ledger(folder / "toy.jsonl")
    assert list(book.records.values()) == [record(k) for k in range(len(book.records))], "lost, or out of order"
    kept = len(book.records)
    study(folder)
    assert list(Ledger(folder / "toy.jsonl").records.values()) == [record(k) for k in range(RESULTS)]
    return kept


KINDS = {
    "train": Kind(train, check_train, ("rename", 1), EPOCHS),
    "save": Kind(save, check_save, ("rename", 1), SAVES),
    "fit": Kind(save_fits, check_fits, ("rename", 1), SAVES),
    "estimator": Kind(save_estimators, check_estimators, ("rename", 1), SAVES),
    # A column, and the learner's own file.
    "learner": Kind(learner, check_learner, ("rename", 2), COLUMNS),
    "study": Kind(study, check_study, ("write", 1), RESULTS),
}
