"""Cells on a Dask cluster give the records that this process gives; without Dask, or without a scheduler, a name says so."""

import sys

import pytest
from toy import CELLS, run_toy, toy

from posterity_studies import Preset, run
from posterity_studies.engine.cluster import compute_on_cluster
from posterity_studies.errors import NoEngine


def test_without_dask_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(NoEngine, match=r"pip install 'posterity-studies\[cluster\]'"):
        next(compute_on_cluster(toy(), toy().cells(Preset.cpu), "tcp://127.0.0.1:1"))


def test_cluster_gives_the_same_records(tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        there = run(toy(), Preset.paper, tmp_path / "there", cluster=cluster.scheduler_address)
        assert run(toy(), Preset.paper, tmp_path / "there", cluster=cluster.scheduler_address) == there
    here = run_toy(tmp_path / "here", 1)
    assert len(there) == len(CELLS)
    assert [(r.key, r.values) for r in there] == [(r.key, r.values) for r in here]
    assert len((tmp_path / "there" / "toy.jsonl").read_text().splitlines()) == len(CELLS)


def test_silent_scheduler_is_named(monkeypatch):
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    monkeypatch.setattr("posterity_studies.engine.cluster.SECONDS", 0.5)
    with pytest.raises(NoEngine, match="no Dask scheduler answers at"):
        next(compute_on_cluster(toy(), toy().cells(Preset.cpu), "tcp://127.0.0.1:9"))
