"""Every kind of data that the command line reads: good files, how they are changed, and how they are read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from mutations import ODD, accident

from posterity.cli.reading import DataRecipe, ReadOptions, read
from posterity.idx import part_of

HEADER = ["age", "größe", "city", "price"]
CELLS = [
    "",
    "NA",
    "inf",
    "1e400",
    "-1e300",
    "2024-01-31",
    "Rome",
    '"',
    "\x00",
    "1;5",
    "é",
    "9" * 200000,
    "=1+1",
    "0x10",
]
TARGET = ReadOptions(target="price", missing="mean")


def rows(count: int = 30) -> list[list[str]]:
    chance = random.Random(0)
    return [
        [
            f"{chance.gauss(40, 10):.3f}",
            f"{chance.gauss(170, 9):.2f}",
            chance.choice(["Köln", "Oslo"]),
            f"{chance.gauss(9, 2):.4f}",
        ]
        for _ in range(count)
    ]


def text(cells: list[list[str]], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([HEADER, *cells])
    return out.getvalue()


# --- tables ----------------------------------------------------------------------------------------

ENCODINGS = {"utf8.csv": "utf-8", "marked.csv": "utf-8-sig", "latin.csv": "latin-1", "wide.csv": "utf-16"}


def make_csv(folder: Path) -> None:
    for name, encoding in ENCODINGS.items():
        (folder / name).write_bytes(text(rows()).encode(encoding))
    (folder / "tabs.tsv").write_bytes(text(rows(), "\t").encode())
    (folder / "semicolons.csv").write_bytes(text(rows(), ";").encode())


def change_csv(folder: Path, chance: random.Random) -> None:
    path = _one_of(folder, chance)
    if chance.random() < 0.5:
        path.write_bytes(accident(path.read_bytes(), chance))
        return
    cells = [HEADER, *rows()]
    for _ in range(chance.choice([1, 1, 3, 40])):
        row = chance.choice(cells)
        row[chance.randrange(len(row))] = chance.choice([*CELLS, str(chance.choice(ODD)), f"{chance.gauss(0, 1e6)}"])
    if chance.random() < 0.2:
        chance.choice(cells).append("one more")
    out = io.StringIO()
    csv.writer(out, chance.choice(["excel", "excel-tab"])).writerows(cells)
    path.write_bytes(out.getvalue().encode(ENCODINGS.get(path.name, "utf-8"), "replace"))


def make_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    ages, sizes, cities, prices = zip(*rows(), strict=True)
    columns: dict[str, Any] = {
        "age": [float(v) for v in ages],
        "größe": [round(float(v)) for v in sizes],
        "city": list(cities),
        "price": [float(v) for v in prices],
    }
    for name, packing in {"plain": "none", "packed": "snappy"}.items():
        parquet.write_table(pa.table(columns), folder / f"{name}.parquet", compression=packing)
    columns["city"] = pa.array(list(cities)).dictionary_encode()
    parquet.write_table(pa.table(columns), folder / "words.parquet", use_dictionary=False)


def change_bytes(folder: Path, chance: random.Random) -> None:
    path = _one_of(folder, chance)
    path.write_bytes(accident(path.read_bytes(), chance))


@cache
def recipe() -> DataRecipe:
    """Of the good table, for reading changed ones as new data of a fit."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "good.csv").write_text(text(rows()), encoding="utf-8")
        return DataRecipe.from_json(json.loads(json.dumps(read(f"{place}/good.csv", TARGET).recipe.to_json())))


def read_tables(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        found = read(str(path), TARGET)
        assert len(found.x) == len(found.pair[1]) == len(found.names)
        assert bool(found.x.isfinite().all())
        again = read(str(path), ReadOptions(), recipe(), labels=False)
        assert again.x.shape[1:] == recipe().shape


# --- idx -------------------------------------------------------------------------------------------


def make_idx(folder: Path) -> None:
    chance = np.random.default_rng(0)
    for root, pack in (("plain", False), ("packed", True)):
        for stem, shape in (("images-idx3", (12, 5, 4)), ("labels-idx1", (12,))):
            content = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
            content += chance.integers(0, 3, shape, dtype=np.uint8).tobytes()
            path = folder / root / "mnist" / f"train-{stem}-ubyte{'.gz' if pack else ''}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content) if pack else content)


def change_idx(folder: Path, chance: random.Random) -> None:
    path = _one_of(folder, chance)
    content = path.read_bytes()
    inside = path.suffix == ".gz" and chance.random() < 0.5
    changed = accident(gzip.decompress(content) if inside else content, chance)
    path.write_bytes(gzip.compress(changed) if inside else changed)


def read_idx(folder: Path) -> None:
    for root in ("plain", "packed"):
        x, y = part_of("mnist", "train", folder / root)
        assert len(x) == len(y)


# --- images ----------------------------------------------------------------------------------------

SUFFIXES = ("png", "jpg", "gif", "bmp", "tif", "webp", "ppm")


def make_images(folder: Path) -> None:
    from PIL import Image

    chance = np.random.default_rng(0)
    for number, suffix in enumerate(SUFFIXES):
        path = folder / f"class {number % 2}" / f"{number}.{suffix}"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(chance.integers(0, 255, (9, 8, 3), dtype=np.uint8)).save(path)


def change_images(folder: Path, chance: random.Random) -> None:
    path = _one_of(folder, chance)
    content = path.read_bytes()
    if path.suffix == ".png" and chance.random() < 0.5:
        # A header that declares another size, with a check sum that holds.
        head = bytearray(content[12:29])
        head[4:12] = struct.pack(">II", *(chance.choice([0, 1, 9, 5000, 13000, 2**31 - 1]) for _ in range(2)))
        path.write_bytes(content[:12] + bytes(head) + struct.pack(">I", zlib.crc32(head)) + content[33:])
    else:
        path.write_bytes(accident(content, chance))


def read_images(folder: Path) -> None:
    found = read(str(folder), ReadOptions(size=8))
    assert found.x.shape == (len(SUFFIXES), found.x.shape[1], 8, 8)


# --- Hugging Face ----------------------------------------------------------------------------------


def make_hugging_face(folder: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    ages, _, cities, prices = zip(*rows(), strict=True)
    columns = {"age": [float(v) for v in ages], "city": list(cities), "label": [int(float(v)) % 2 for v in prices]}
    made = datasets.Dataset.from_dict(columns)
    made.cast_column("label", datasets.ClassLabel(names=["no", "yes"])).save_to_disk(str(folder / "set"))


def read_hugging_face(folder: Path) -> None:
    found = read(str(folder / "set"))
    assert len(found.x) == len(found.pair[1])


def _one_of(folder: Path, chance: random.Random) -> Path:
    return chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
