"""CSV files with a header: columns by name, missing values and text in a column of numbers told by name."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from posterity.cli.reading.examples import Raw, Wish
from posterity.errors import BadData

MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


def header(path: Path) -> list[str]:
    """The names of the columns."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = [name.strip() for name in next(csv.reader(file, dialect=_dialect(path)), [])]
    if not names:
        raise BadData(f"{path} is empty: a header with the names of the columns is needed.")
    if all(_number(name) is not None for name in names):
        raise BadData(f"{path} has no header: its first row is numbers. Put the names of the columns there.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadData(f'{path} has two columns "{twice}": names of columns must differ.')
    return names


def row_count(path: Path) -> int:
    """How many rows there are below the header, without keeping any."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return max(0, sum(1 for row in csv.reader(file, dialect=_dialect(path)) if row) - 1)


def inputs_of(names: list[str], wish: Wish, path: Path) -> tuple[str, ...]:
    """The columns that are inputs: those asked for, else all but the target."""
    for name in (*wish.columns, *([wish.target] if wish.target else [])):
        if name not in names:
            whole = len(names) == 1 and ";" in names[0]
            hint = " Its columns are parted by semicolons: save it with commas." if whole else ""
            raise BadData(f'{path} has no column "{name}": it has {", ".join(names)}.{hint}')
    return wish.columns or tuple(name for name in names if name != wish.target)


def read_table(path: Path, wish: Wish) -> Raw:
    """The chosen columns as numbers, and the target as numbers or text."""
    names = header(path)
    columns = inputs_of(names, wish, path)
    wanted = [*columns, *([wish.target] if wish.target else [])]
    places = [names.index(name) for name in wanted]
    kept: list[list[str]] = []
    numbers: list[int] = []
    lacking: dict[str, list[int]] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, dialect=_dialect(path))
        next(rows)
        for number, row in enumerate((row for row in rows if row), 1):
            if len(row) != len(names):
                raise BadData(f"{path}, row {number}: {len(row)} values and {len(names)} columns.")
            cells = [row[place].strip() for place in places]
            gaps = [name for name, cell in zip(wanted, cells, strict=True) if cell.lower() in MISSING]
            for name in gaps:
                lacking.setdefault(name, []).append(number)
            if not gaps:
                kept.append(cells)
                numbers.append(number)
    if lacking and wish.missing == "refuse":
        told = "; ".join(f'"{n}" lacks {len(r):,} (first in row {r[0]})' for n, r in list(lacking.items())[:5])
        raise BadData(f"{path} has missing values: {told}. --missing drop leaves these rows out.")
    if not kept:
        raise BadData(f"{path} has no row without missing values.")
    x = np.array(
        [
            [_cell(path, name, n, c) for name, c in zip(columns, cells, strict=False)]
            for n, cells in zip(numbers, kept, strict=True)
        ]
    )
    y = None
    if wish.target:
        words = [cells[-1] for cells in kept]
        values = [_number(word) for word in words]
        y = np.array(words) if any(v is None for v in values) else np.array(values, dtype=np.float64)
        if wish.task == "regression" and any(v is None for v in values):
            bad = next(word for word, v in zip(words, values, strict=True) if v is None)
            raise BadData(f'the target "{wish.target}" holds "{bad}", which is no number: a regression needs numbers.')
    dropped = sum(len(set(r)) for r in [{n for rows_ in lacking.values() for n in rows_}])
    notes = [f"{dropped:,} rows with missing values were left out."] if dropped else []
    return Raw(x.astype(np.float32), y, [str(n) for n in numbers], columns=columns, notes=notes)


def _cell(path: Path, name: str, row: int, text: str) -> float:
    value = _number(text)
    if value is None:
        raise BadData(
            f'{path}, row {row}: column "{name}" holds "{text[:40]}", which is no number. '
            "Choose others with --columns, or turn it into numbers."
        )
    return value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _dialect(path: Path) -> type[csv.Dialect]:
    return csv.excel_tab if path.suffix == ".tsv" else csv.excel
