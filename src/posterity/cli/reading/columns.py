"""From the columns of a table to inputs: numbers as they are, text as 0 and 1 for each category.

Rules, each of them in the recipe that travels with a fit:
- Text becomes one input for each of at most 100 categories; a text that was not learned from is 0 in all, and noted.
- A column of numbers with text in it, dates, and texts that hardly repeat are refused, all in one message.
- Rows with missing values are refused, left out, or filled in with the mean, as `--missing` says. A target is never filled in.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import replace

import numpy as np

from posterity.border import check_size
from posterity.cli.reading.examples import Array, DataRecipe, RawData, ReadOptions, TableColumn
from posterity.cli.reading.tables import Numbers, Table, Texts, number, numbers
from posterity.errors import BadData

CATEGORIES = 100
"""Texts that a column may hold; with more they are names or sentences, of which a network learns nothing."""
MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/]\d{1,2}[-/]\d{2,4}|\d{1,2}\.\d{1,2}\.\d{4}"
    rf"|\d{{1,2}}[ -]?{MONTH}[ -]\d{{2,4}}|{MONTH} \d{{1,2}},? \d{{4}}|\d{{1,2}}:\d{{2}})"
    r"([T ,]*\d{1,2}:\d{2}.*|:\d{2}.*)?",
    re.IGNORECASE,
)
SHARE = 0.5
"""Of the texts of a column that look like dates: from here on it is a column of dates."""


def check_target(table: Table, options: ReadOptions, needed: bool) -> None:
    """Refuse a table whose target column is not named, or not there."""
    if options.target is not None and options.target not in table.names:
        raise BadData(f'--target "{options.target}": {_has(table, options.target)}')
    if options.target is None and needed:
        raise BadData(
            f"{table.path} has no labels yet: name the column that is to be predicted with --target. It has "
            f"{', '.join(table.names)}."
        )


def read_columns(table: Table, options: ReadOptions, recipe: DataRecipe | None = None) -> RawData:
    """The chosen columns as inputs, and the target as numbers or text.

    Args:
        table: with all of its columns.
        options: which of them are wanted.
        recipe: of a fit: what each column became then, it becomes now.
    Returns:
        Inputs before standardisation, NaN where the mean is to be filled in.
    Raises:
        BadData: with the file, the line or row, and the column.
    """
    wanted = recipe.names if recipe is not None else _wanted(table, options)
    _check_there(table, wanted, recipe is not None)
    if not table.places:
        raise BadData(f"{table.path} has no row below its header.")
    # Columns that cannot be used are named before gaps are: some of those may be in them.
    columns = recipe.columns if recipe is not None else _columns(table, wanted, np.arange(len(table.places)), options)
    kept, notes = _kept(table, wanted, options)
    if recipe is None and len(kept) < len(table.places):
        columns = _columns(table, wanted, kept, options)
    width = sum(column.width for column in columns)
    check_size(table.path, 32 * len(kept) * width, f"{len(kept):,} rows that become {width:,} inputs each")
    x = np.empty((len(kept), width))
    at = 0
    for column in columns:
        part, more = _encoded(table, column, kept)
        x[:, at : at + column.width] = part
        notes, at = notes + more, at + column.width
    y = None if options.target is None else _target(table, options, kept)
    names = [str(row + 1) for row in kept]
    return RawData(
        x, y, names, columns=columns, notes=[*table.notes, *notes], groups=read_groups(table, options.groups, kept)
    )


def read_groups(table: Table, name: str | None, kept: Array) -> Array | None:
    """What each of these rows belongs to, as text."""
    if name is None:
        return None
    if name not in table.columns:
        raise BadData(f'--groups "{name}": {_has(table, name)}')
    found = [_text(table.columns[name], row) for row in kept.tolist()]
    if None in found:
        raise BadData(f'{table.path}, {table.place(int(kept[found.index(None)]))}: the group "{name}" is missing.')
    return np.array(found)


def read_target(table: Table, options: ReadOptions) -> Array:
    """The target alone, of every row."""
    kept, _ = _kept(table, (), replace(options, missing="refuse"))
    return _target(table, options, kept)


def _wanted(table: Table, options: ReadOptions) -> tuple[str, ...]:
    for option, names in (("--columns", options.columns), ("--text", options.text)):
        for name in names:
            if name not in table.names:
                raise BadData(f'{option} "{name}": {_has(table, name)}')
    if options.target in options.columns:
        raise BadData(f'--columns names the target "{options.target}": it would be predicted from itself.')
    found = options.columns or tuple(name for name in table.names if name not in (options.target, options.groups))
    if not found:
        raise BadData(f'{table.path} has no column beside "{options.target}": there is nothing to predict from.')
    return found


def _has(table: Table, name: str) -> str:
    near = difflib.get_close_matches(name, table.names, 1)
    meant = f' Did you mean "{near[0]}"?' if near else ""
    return f'{table.path} has no column "{name}": it has {", ".join(table.names)}.{meant}'


def _check_there(table: Table, wanted: tuple[str, ...], learned: bool) -> None:
    lacking = [name for name in wanted if name not in table.names]
    if lacking:
        listed = ", ".join(f'"{name}"' for name in lacking) + (" that was learned from" if learned else "")
        what = "column" if len(lacking) == 1 else "columns"
        raise BadData(f"{table.path} lacks the {what} {listed}: it has {', '.join(table.names)}.")


def _kept(table: Table, wanted: tuple[str, ...], options: ReadOptions) -> tuple[Array, list[str]]:
    """The rows that are read, by the rule for missing values."""
    rule = options.missing or "refuse"
    gaps = {name: _gaps(values) for name in wanted if (values := table.columns.get(name)) is not None}
    if options.target in table.columns:
        gaps[options.target] = _gaps(table.columns[options.target])
    lacking = {name: found for name, found in gaps.items() if found.any()}
    if lacking and rule == "refuse":
        listed = "; ".join(
            f'"{name}" lacks {int(found.sum()):,} (first in {table.place(int(found.argmax()))})'
            for name, found in list(lacking.items())[:5]
        )
        raise BadData(
            f"{table.path} has missing values: {listed}. --missing drop leaves these rows out, --missing mean fills them in."
        )
    out = np.zeros(len(table.places), bool)
    filled = 0
    for name, found in lacking.items():
        if rule == "drop" or name == options.target:
            out |= found
        else:
            filled += int(found.sum())
    notes = []
    if out.any():
        notes.append(f"{int(out.sum()):,} rows with missing values were left out.")
    if filled:
        notes.append(f"{filled:,} missing values were filled in with the mean of their column (text: no category).")
    kept = np.flatnonzero(~out)
    if not len(kept):
        raise BadData(f"{table.path} has no row without missing values.")
    return kept, notes


def _gaps(values: Numbers | Texts) -> Array:
    return np.isnan(values) if isinstance(values, np.ndarray) else np.array([v is None for v in values], bool)


def _columns(table: Table, wanted: tuple[str, ...], kept: Array, options: ReadOptions) -> tuple[TableColumn, ...]:
    """What each column is. All that cannot be used are named at once, with an option that leaves them out."""
    found, bad = [], []
    for name in wanted:
        column, problem = _column(table, name, kept, name in options.text)
        if column is None:
            bad.append((name, problem))
        else:
            found.append(column)
    if bad:
        listed = "; ".join(f'column "{name}" {problem}' for name, problem in bad[:8])
        rest = f"; and {len(bad) - 8} more" if len(bad) > 8 else ""
        good = ",".join(column.name for column in found)
        remedy = f"--columns {good} leaves them out" if good else "--columns chooses others"
        raise BadData(f"{table.path}: {listed}{rest}. {remedy}; or turn them into numbers.")
    return tuple(found)


def _column(table: Table, name: str, kept: Array, as_text: bool) -> tuple[TableColumn | None, str]:
    if name in table.refused:
        return None, f"holds {table.refused[name]}"
    values = table.columns[name]
    if isinstance(values, np.ndarray) and not as_text:
        odd = np.flatnonzero(np.isinf(values[kept]))
        if len(odd):
            return None, f"holds an infinity in {table.place(int(kept[odd[0]]))}"
        return (TableColumn(name), "") if not np.isnan(values[kept]).all() else (None, "holds no value")
    texts = [(row, text) for row in kept.tolist() if (text := _text(values, row)) is not None]
    if not texts:
        return None, "holds no value"
    may_be_numbers = table.parsed and not as_text
    if may_be_numbers and numbers([text for _, text in texts]) is not None:
        return TableColumn(name), ""
    words = [(row, text) for row, text in texts if number(text) is None] if may_be_numbers else texts
    row, text = words[0]
    if len(words) < len(texts):
        return None, (
            f'holds "{text[:40]}" in {table.place(row)}, which is no number, beside {len(texts) - len(words):,} numbers '
            f"(mend it, or --text {name} takes all for text)"
        )
    if sum(DATE.fullmatch(text) is not None for _, text in words) >= SHARE * len(words):
        return None, f'holds dates ("{text[:40]}" in {table.place(row)}): use days, months or years as numbers'
    categories = sorted({text for _, text in texts})
    if len(categories) > CATEGORIES:
        return None, (
            f'holds {len(categories):,} different texts ("{text[:40]}" in {table.place(row)}), more than {CATEGORIES}'
        )
    return TableColumn(name, tuple(categories)), ""


def _text(values: Numbers | Texts, row: int) -> str | None:
    value = values[row]
    if value is None or isinstance(value, str):
        return value
    return None if np.isnan(value) else f"{value:.15g}"


def _encoded(table: Table, column: TableColumn, kept: Array) -> tuple[Array, list[str]]:
    """A column's inputs for the rows that are read, and what has to be said of them."""
    if column.name in table.refused:
        raise BadData(f'{table.path}: column "{column.name}" holds {table.refused[column.name]}.')
    values = table.columns[column.name]
    if not column.categories:
        return _numbers(table, column.name, kept)[:, None], []
    position = {category: k for k, category in enumerate(column.categories)}
    out = np.zeros((len(kept), column.width))
    unseen: Counter[str] = Counter()
    for i, row in enumerate(kept.tolist()):
        text = _text(values, row)
        if text in position:
            out[i, position[text]] = 1.0
        elif text is not None:
            unseen[text] += 1
    if not unseen:
        return out, []
    listed = ", ".join(f'"{text[:40]}"' for text, _ in unseen.most_common(3))
    return out, [
        f'column "{column.name}": {unseen.total():,} of {len(kept):,} rows hold text that was not learned from ({listed}): '
        "they are 0 in all its categories."
    ]


def _numbers(table: Table, name: str, kept: Array) -> Array:
    """A column of numbers, NaN where a value is missing."""
    values = table.columns[name]
    if isinstance(values, np.ndarray):
        found = values[kept]
    else:
        rows = [row for row in kept.tolist() if values[row] is not None]
        texts = [str(values[row]) for row in rows]
        read = numbers(texts) if table.parsed else None
        if read is None:
            row, text = next((r, t) for r, t in zip(rows, texts, strict=True) if not table.parsed or number(t) is None)
            raise BadData(f'{table.path}, {table.place(row)}: column "{name}" holds "{text[:40]}", which is no number.')
        found = np.full(len(kept), np.nan)
        found[np.searchsorted(kept, rows)] = read
    if len(odd := np.flatnonzero(np.isinf(found))):
        raise BadData(f'{table.path}, {table.place(int(kept[odd[0]]))}: column "{name}" holds an infinity.')
    return found


def _target(table: Table, options: ReadOptions, kept: Array) -> Array:
    """Numbers, or text for classes."""
    name = options.target
    assert name is not None
    if name in table.refused:
        raise BadData(f"--target {name}: the column holds {table.refused[name]}, which cannot be predicted.")
    values = table.columns[name]
    if isinstance(values, np.ndarray):
        return _numbers(table, name, kept)
    words = [str(values[row]) for row in kept.tolist()]
    read = numbers(words) if table.parsed else None
    if read is not None:
        return read
    bad = next(k for k, word in enumerate(words) if not table.parsed or number(word) is None)
    where = f'{table.path}, {table.place(int(kept[bad]))}: the target "{name}" holds "{words[bad][:40]}"'
    if options.task == "regression":
        raise BadData(f"{where}, which is no number: a regression needs numbers.")
    if sum(DATE.fullmatch(word) is not None for word in words) >= SHARE * len(words):
        raise BadData(f"{where}: dates cannot be predicted, use days, months or years as numbers.")
    return np.array(words, dtype=object)  # of its own length each: one long text does not make all of them long
