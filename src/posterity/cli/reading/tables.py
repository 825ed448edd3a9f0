"""Tables in memory: from text (.csv, .tsv) and from Parquet files. What the columns become is decided in `columns.py`."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from posterity.border import check_size, reading
from posterity.errors import BadData, NotInstalled

Numbers = npt.NDArray[np.float64]
Texts = list[str | None]
MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
"""Cells of a text file that hold no value, in any case."""
LONGEST = max(map(len, MISSING))
BINARY = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", ".tsv", *PARQUET)
CELL = 16
"""Times its size that a text file takes in memory, a Python string for each cell."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table, column by column. A missing value is NaN among numbers and None among texts."""

    path: Path
    columns: dict[str, Numbers | Texts]
    places: list[int]
    """Of each row: its line in a text file, its row in others."""
    unit: str
    """What places count: line or row."""
    parsed: bool
    """Whether texts may stand for numbers, as all do in a text file."""
    refused: dict[str, str] = field(default_factory=dict)
    """Columns that hold neither numbers nor text, and what they hold."""
    notes: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [*self.columns, *self.refused]

    def place(self, row: int) -> str:
        """Where a row stands in the file."""
        return f"{self.unit} {self.places[row]}"


def read_table(path: Path) -> Table:
    """All columns of a file."""
    with reading(path, "a table", BadData):
        return read_parquet(path) if path.suffix.lower() in PARQUET else text_table(path)


# --- text ------------------------------------------------------------------------------------------


def text_table(path: Path) -> Table:
    """A file with a header, in UTF-8, UTF-16 (with its mark) or Latin-1."""
    names, rows, places, notes = text_rows(path)
    keep = [k for k, name in enumerate(names) if name]
    if len(keep) < len(names):
        left = ", ".join(str(k + 1) for k, name in enumerate(names) if not name)
        notes.append(f"column {left} has no name and was left out (pandas writes its index so).")
    columns: dict[str, Numbers | Texts] = {names[k]: [_cell(row[k].strip()) for row in rows] for k in keep}
    return Table(path, columns, places, "line", True, notes=notes)


def text_rows(path: Path) -> tuple[list[str], list[list[str]], list[int], list[str]]:
    """The names of the columns, every row that is not empty as text, the lines they stand in, and notes."""
    check_size(path, CELL * path.stat().st_size, "a table of text")
    content = path.read_bytes()
    encoding, note = _encoding(content)
    text = content.decode(encoding)
    if odd := BINARY.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        raise BadData(
            f"{path}, line {line}: the character U+{ord(odd[0]):04X} is not text. A table is text with a header, in UTF-8."
        )
    first = text.lstrip("\r\n").partition("\n")[0]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
    del text
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    places: list[int] = []
    names: list[str] = []
    try:
        for row in lines:
            if not any(map(str.strip, row)):
                continue
            if not names:
                names = _header(path, row)
                continue
            if len(row) != len(names):
                raise BadData(f"{path}, line {lines.line_num}: {len(row)} values and {len(names)} columns.")
            rows.append(row)
            places.append(lines.line_num)
    except csv.Error as error:
        raise BadData(f"{path}, line {lines.line_num}: {error}. Is a quotation mark open?") from None
    if not names:
        raise BadData(f"{path} is empty: a header with the names of the columns is needed.")
    return names, rows, places, [note] if note else []


def _encoding(content: bytes) -> tuple[str, str]:
    """By the mark at the beginning, else UTF-8; a file that is not UTF-8 is Latin-1 as Windows writes it, and that is said."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16", ""
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return "cp1252", f"byte {error.start} (line {line}) is not UTF-8: the file was read as Latin-1 (Windows-1252)."
    return "utf-8-sig", ""


def _header(path: Path, row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    if all(number(name) is not None for name in names):
        raise BadData(f"{path} has no header: its first row is numbers. Put the names of the columns there.")
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise BadData(f'{path} has two columns "{twice[:80]}": names of columns must differ.')
    return names


def _cell(text: str) -> str | None:
    return None if len(text) <= LONGEST and text.lower() in MISSING else text


def number(text: str) -> float | None:
    """The number that a cell holds, or None. An underscore is for programmers, and infinity is no measurement."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def numbers(texts: list[str]) -> Numbers | None:
    """Many numbers at once; None if one text is no number."""
    try:
        found = np.array(list(map(float, texts)))
    except ValueError:
        return None
    return found if np.isfinite(found).all() and not any("_" in text for text in texts) else None


# --- Parquet ---------------------------------------------------------------------------------------


def read_parquet(path: Path) -> Table:
    """A Parquet file. What it declares is counted before it is unpacked."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise NotInstalled(f"{path} is a Parquet file, and pyarrow is not installed: pip install pyarrow.") from None
    with parquet.ParquetFile(path) as file:
        about, schema = file.metadata, file.schema_arrow
        packed = sum(max(0, about.row_group(i).total_byte_size) for i in range(about.num_row_groups))
        # A value that repeats takes no room in the file: rows count, and pages while they are unpacked.
        need = 64 * about.num_rows * len(schema) + 2 * packed
        check_size(path, need, f"{about.num_rows:,} rows of {len(schema)} columns")
    # Text by its dictionary, so that a long text that repeats is in memory once.
    words = [field.name for field in schema if _is_text(field.type)]
    with parquet.ParquetFile(path, read_dictionary=words) as file:
        return arrow_table(path, file.read(use_threads=False))


def arrow_table(path: Path, found: Any) -> Table:
    """A table of pyarrow, checked: numbers as float64, texts as text, and the names of columns that are neither."""
    import pyarrow as pa

    found.validate(full=True)
    columns: dict[str, Numbers | Texts] = {}
    refused: dict[str, str] = {}
    names, notes = found.column_names, []
    if index := [name for name in names if not name or name.startswith("__index_level_")]:
        notes.append(f'column "{index[0]}" has no name and was left out (pandas writes its index so).')
        found = found.drop_columns(list(set(index)))
        names = found.column_names
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadData(f'{path} has two columns "{twice[:80]}": names of columns must differ.')
    for name in names:
        values, kind = found[name], found.schema.field(name).type
        if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
            columns[name] = [word for part in values.chunks for word in _looked_up(part)]
            continue
        if pa.types.is_dictionary(kind):
            values, kind = values.cast(kind.value_type), kind.value_type
        if pa.types.is_boolean(kind):
            values, kind = values.cast(pa.int8()), pa.int8()
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            columns[name] = np.array(values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
        elif pa.types.is_null(kind):
            columns[name] = np.full(len(values), np.nan)
        elif _is_text(kind):
            columns[name] = [v if v is None else v.strip() for v in values.to_pylist()]
        elif pa.types.is_temporal(kind):
            refused[name] = "dates or times: use days, months or years as numbers"
        else:
            refused[name] = f"{kind}, which is neither numbers nor text"
    return Table(path, columns, list(range(1, found.num_rows + 1)), "row", False, refused, notes=notes)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _looked_up(part: Any) -> Texts:
    """Texts that are kept as numbers of a dictionary."""
    words = [word if word is None else word.strip() for word in part.dictionary.to_pylist()]
    return [None if number is None else words[number] for number in part.indices.to_pylist()]
