"""Files below 10 MB that declare or unpack to far more: refused by name, and no reading takes a gigabyte."""

from __future__ import annotations

import gzip
import struct
import zipfile

import numpy as np
import pytest
from mutate import MOST, memory, start_counting

from posterity.cli.reading import ReadOptions, read
from posterity.errors import BadData, NoDataSet, OversizedData, PosterityError
from posterity.idx import part_of

SMALL = 10 << 20


def zeros(count: int, head: bytes = b"") -> bytes:
    """A gzip file of that many zero bytes: a short stream many times over."""
    return gzip.compress(head) + gzip.compress(bytes(1 << 22)) * (count >> 22) + gzip.compress(bytes(count % (1 << 22)))


def idx_declared(folder):
    """Three megabytes that hold, as they declare, three billion pixels."""
    return _idx(folder, (4_000_000, 28, 28), zeros(4_000_000 * 28 * 28, _head(4_000_000, 28, 28)))


def idx_undeclared(folder):
    """A header of ten images before a gigabyte of zeros."""
    return _idx(folder, (10, 28, 28), zeros(1 << 30, _head(10, 28, 28)))


def idx_of_labels(folder):
    images = gzip.compress(_head(2, 2, 2) + bytes(8))
    return _idx(folder, (2, 2, 2), images, labels=zeros(1 << 28, _head(1 << 28)))


def _head(*shape: int) -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)


def _idx(folder, shape, images, labels=None):
    (folder / "mnist").mkdir()
    (folder / "mnist/train-images-idx3-ubyte.gz").write_bytes(images)
    (folder / "mnist/train-labels-idx1-ubyte.gz").write_bytes(
        labels or gzip.compress(_head(shape[0]) + bytes(min(shape[0], 1 << 24)))
    )
    return lambda: part_of("mnist", "train", folder)


def png(folder):
    """13,000 by 13,000 pixels of one colour, as they are."""
    side = 13_000
    image = pytest.importorskip("PIL.Image")
    (folder / "i").mkdir()
    image.new("RGB", (side, side)).save(folder / "i/large.png")
    return lambda: read(str(folder / "i"), labels=False)


def png_allowed(folder):
    """The largest that is decoded."""
    image = pytest.importorskip("PIL.Image")
    (folder / "i").mkdir()
    image.new("RGBA", (8000, 8000)).save(folder / "i/large.png", exif=_turned(image))
    return lambda: read(str(folder / "i"), labels=False)


def _turned(image):
    exif = image.Exif()
    exif[0x0112] = 6
    return exif


def webp(folder):
    """A header of 16,384 by 16,384 pixels over few."""
    image = pytest.importorskip("PIL.Image")
    (folder / "i").mkdir()
    path = folder / "i/large.webp"
    image.new("RGBA", (9, 9)).save(path, exif=_turned(image), lossless=True)
    content = path.read_bytes()
    assert content[12:16] == b"VP8X"
    path.write_bytes(content[:24] + b"\xff\x3f\x00" * 2 + content[30:])
    return lambda: read(str(folder / "i"), labels=False)


def npz(folder):
    """A quarter of a gigabyte in bytes, and a whole one in the float32 that they become."""
    return _npz(folder, {"x": (1 << 25, 8)})


def npz_of_labels(folder):
    return _npz(folder, {"x": (4, 2), "y": (1 << 28,)})


def _npz(folder, shapes):
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, shape in shapes.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                left = int(np.prod(shape))
                while left:
                    left -= member.write(bytes(min(left, 1 << 22)))
    return lambda: read(str(folder / "a.npz"))


def categories(folder):
    """A million rows whose five columns of text become 500 inputs."""
    row = [f"{i}{'abcde'[j]}" for i in range(100) for j in range(5)]
    lines = [",".join(row[5 * i : 5 * i + 5]) + ",1" for i in range(100)]
    text = "a,b,c,d,e,y\n" + "\n".join(lines * 5500)
    (folder / "a.csv").write_text(text[: SMALL - 100].rpartition("\n")[0])
    return lambda: read(str(folder / "a.csv"), ReadOptions(target="y"))


def cells(folder):
    """As many cells as ten megabytes hold."""
    (folder / "a.csv").write_text("a,b,y\n" + "1,2,3\n" * 1_700_000)
    return lambda: read(str(folder / "a.csv"), ReadOptions(target="y", task="regression"))


def distinct_cells(folder):
    (folder / "a.csv").write_text("a,y\n" + "".join(f"{i:x},{i}\n" for i in range(750_000)))
    return lambda: read(str(folder / "a.csv"), ReadOptions(target="y", text=("a",)))


def parquet(folder):
    """A hundred million rows of one value, in some kilobytes."""
    pa = pytest.importorskip("pyarrow")
    written = pytest.importorskip("pyarrow.parquet")
    columns = {name: pa.DictionaryArray.from_arrays(np.zeros(10**7, np.int8), ["x"]) for name in "ab"}
    with written.ParquetWriter(folder / "a.parquet", pa.table(columns).schema) as writer:
        for _ in range(10):
            writer.write_table(pa.table(columns))
    return lambda: read(str(folder / "a.parquet"), ReadOptions(target="a"))


def parquet_of_long_texts(folder):
    """One text of a megabyte in a hundred thousand rows: read, since it is in memory once."""
    pa = pytest.importorskip("pyarrow")
    column = pa.DictionaryArray.from_arrays(np.zeros(10**5, np.int8), ["x" * (1 << 20)])
    pytest.importorskip("pyarrow.parquet").write_table(
        pa.table({"a": column, "y": np.arange(10**5)}), folder / "a.parquet", store_schema=False
    )
    return lambda: read(str(folder / "a.parquet"), ReadOptions(target="y", task="regression"))


LONG = [png, png_allowed, categories, cells, distinct_cells, parquet]
REFUSED = [
    idx_declared,
    idx_undeclared,
    idx_of_labels,
    png,
    webp,
    npz,
    npz_of_labels,
    categories,
    distinct_cells,
    parquet,
]
READ = [png_allowed, cells, parquet_of_long_texts]


@pytest.mark.parametrize(
    "craft",
    [pytest.param(c, id=c.__name__, marks=[pytest.mark.slow] if c in LONG else []) for c in (*REFUSED, *READ)],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_no_file_below_ten_megabytes_takes_a_gigabyte(tmp_path, craft):
    attempt = craft(tmp_path)
    assert all(path.stat().st_size < SMALL for path in tmp_path.rglob("*") if path.is_file())
    before = start_counting()
    try:
        attempt()
        refused = None
    except PosterityError as error:
        refused = error
    taken = memory("VmHWM") - before
    assert taken < MOST
    assert isinstance(refused, (OversizedData, NoDataSet, BadData) if craft in REFUSED else type(None))
    assert refused is None or str(tmp_path) in str(refused)
