"""Learned priors: one file for each recipe, in the cache folder, learned once."""

from dataclasses import fields, replace

import pytest
import torch

from posterity.algebra import KroneckerSum
from posterity_studies import STUDIES, Preset
from posterity_studies.engine.ledger import Ledger
from posterity_studies.folders import SHIPPED, cache
from posterity_studies.shared import sources
from posterity_studies.shared.sources import Recipe, learned_prior, source_curvature, write_prior

TINY = Recipe("tiny", 30, 0.5, epochs=1)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set of noise, a cache of its own, and a count of how often a prior was learned."""
    x, y = torch.rand(40, 1, 28, 28), torch.arange(40) % 10
    monkeypatch.setenv("POSTERITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "data_set", lambda name: sources.Images((x, y), (x, y)))
    learned, learn = [], sources._learn
    monkeypatch.setattr(sources, "_learn", lambda recipe, progress: learned.append(recipe) or learn(recipe, progress))
    learned_prior.cache_clear()
    yield learned
    learned_prior.cache_clear()


CHANGED = {
    "source": "other", "examples": 31, "precision": 0.25, "by_class": True, "epochs": 2, "lr": 1e-3, "batch_size": 8,
    "evidence": True, "one_pair": True, "seed": 1, "version": 2,
}  # fmt: skip


def test_every_part_of_a_recipe_is_in_its_name():
    assert CHANGED.keys() == {field.name for field in fields(Recipe)}
    names = {replace(TINY, **{name: value}).name for name, value in CHANGED.items()}
    assert len(names | {TINY.name}) == len(CHANGED) + 1


def test_a_prior_is_learned_once_and_kept_in_the_cache_and_not_in_the_current_folder(tiny, tmp_path):
    first = learned_prior(TINY)
    learned_prior.cache_clear()
    second = learned_prior(TINY)
    assert tiny == [TINY]
    assert (cache() / "priors" / f"{TINY.name}.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert all(torch.equal(first.mean[name], second.mean[name]) for name in first.mean)


def test_its_precision_is_the_isotropic_one_plus_the_sources_curvature(tiny):
    prior = learned_prior(TINY)
    for block, matrix in prior.precision.items():
        assert isinstance(matrix, KroneckerSum)
        (floor,) = (term for term in matrix.terms if term.is_scaled_identity)
        assert float(floor.trace() / matrix.size) == pytest.approx(0.5)
        assert [source_curvature(prior, block)] == [term for term in matrix.terms if term is not floor]


def test_one_pair_is_what_the_recipe_says(tiny, tmp_path):
    path = write_prior(replace(TINY, one_pair=True), tmp_path / "here")
    assert path.parent == tmp_path / "here"
    assert sources.load(path).is_compressed


@pytest.mark.parametrize("name", STUDIES)
def test_every_committed_record_names_the_recipe_it_was_made_with(name):
    study = STUDIES[name]
    known = {cell.key: cell for preset in Preset for cell in study.cells(preset)}
    records = Ledger(SHIPPED / f"{name}.jsonl").records
    # Records of cells that have left the grid stay in the file: no one asks for them.
    assert all(record.source == known[key].source for key, record in records.items() if key in known)
