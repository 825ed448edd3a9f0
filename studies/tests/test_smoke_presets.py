"""The LeNet and UCI studies run from data to verdict on miniatures of their data sets, in seconds."""

import gzip
import struct
from dataclasses import replace

import numpy as np
import pytest

from posterity_studies import STUDIES, Preset, Verdict, find, markdown, report, run, save_figure
from posterity_studies.shared.sources import data_set, learned_prior
from posterity_studies.studies.calibration.cells import ood_images


def idx(array):
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def miniature(tmp_path_factory):
    """Ten patterns with noise, in the formats of the real sets; priors are kept beside them and not in the project."""
    root = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    for name in ("mnist", "notmnist", "fashion_mnist"):
        (root / name).mkdir()
        patterns = draw.integers(0, 256, (10, 28, 28))
        for part, n in (("train", 400), ("t10k", 100)):
            y = np.arange(n) % 10
            x = np.clip(patterns[y] + draw.normal(0, 40, (n, 28, 28)), 0, 255).astype(np.uint8)
            (root / name / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(x), 1))
            (root / name / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(y.astype(np.uint8)), 1))
    (root / "cifar10").mkdir()
    x = draw.integers(0, 256, (60, 32, 32, 3)).astype(np.uint8)
    np.savez(root / "cifar10" / "part.npz", x_train=x, y_train=np.zeros(60), x_test=x, y_test=np.zeros(60))
    (root / "uci").mkdir()
    z = draw.normal(size=(80, 4))
    np.savez(
        root / "uci" / "yacht.npz", data=z, features=np.arange(3), target=3, test_index=np.arange(16).reshape(2, 8)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSTERITY_DATA", str(root))
        patch.setenv("POSTERITY_CACHE", str(root / "cache"))
        _forget()
        yield root
    _forget()


def _forget():
    for cached in (data_set, learned_prior, ood_images):
        cached.cache_clear()


LONG = {"bounds", "certificates", "columns", "continual-small", "few-per-class", "quality", "transfer", "untouched"}
"""Half a minute each."""
SMOKE = [name for name in STUDIES if name not in {"kronecker", "lora"}]  # which have tests of their own


# Two epochs on a miniature end nowhere near a mode, and it is said.
@pytest.mark.filterwarnings("ignore::posterity.laplace.polish.NotAtMode")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in SMOKE])
def test_smoke_preset_goes_from_data_to_verdict(name, miniature, tmp_path):
    goes_from_data_to_verdict(find(name), tmp_path)


def test_a_recursive_certificate_goes_from_data_to_verdict(miniature, tmp_path):
    """The shortest row of a long study, every time."""
    study = find("certificates")
    cells = [cell for cell in study.grid[Preset.smoke] if cell["row"] == "mnist-recursive"]
    assert cells
    goes_from_data_to_verdict(replace(study, grid={**study.grid, Preset.smoke: cells}), tmp_path)


def goes_from_data_to_verdict(study, folder):
    records = run(study, Preset.smoke, folder)
    assert len(records) == len(study.grid[Preset.smoke])
    assert isinstance(study.verdict(records), Verdict)
    for table in study.tables(records):
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert save_figure(study, records, folder).stat().st_size > 1000
    assert f": {study.claim}\n" in markdown(study, Preset.smoke, records)
    assert f"posterity study run {study.id} --preset smoke" in report({study.id: study}, folder)


@pytest.mark.parametrize(
    "name", ["bound-shape", "calibration", "cold-posterior", "exact-algebra", "quality", "regression", "small-data"]
)
def test_every_seed_of_the_cpu_preset_is_there_for_every_method(name):
    cells = find(name).grid[Preset.cpu]
    seeds = {c.get("seed", c.get("split")) for c in cells}
    assert len(seeds) >= 5
