"""Runs can be stopped, killed, resumed and spread over workers, and the results are the same."""

import json
import multiprocessing
import random
import time

import pytest
from toy import CELLS, dying, failing, run_toy, toy

from posterity.errors import NotFinite
from posterity_studies import Preset, latest, ledger, run
from posterity_studies.errors import NoResults, ResultsBusy, WorkerDied


def contents(folder):
    """Everything in the results file but its order and timing, lines that double a key included."""
    lines = [json.loads(line) for line in (folder / "toy.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
    return sorted(lines, key=lambda line: line["key"])


def lines(folder):
    path = folder / "toy.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run_toy(folder, workers=1)
    return contents(folder)


@pytest.mark.parametrize(("workers", "kills"), [(1, 6), (2, 2)])
def test_killed_and_resumed_run_leaves_what_an_undisturbed_one_does(tmp_path, undisturbed, workers, kills):
    chance = random.Random(workers)
    # Each run is forked from a process that has torch imported already: seconds saved a run.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["posterity_studies"])
    hits = 0
    for _ in range(kills):
        process = context.Process(target=run_toy, args=(tmp_path, workers))
        process.start()
        target = lines(tmp_path) + chance.randint(1, 3)
        while process.is_alive() and lines(tmp_path) < target:
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.012))
        hits += process.is_alive()
        process.kill()
        process.join()
    assert hits >= 1
    run_toy(tmp_path, workers)
    assert contents(tmp_path) == undisturbed


def test_two_workers_equal_one(tmp_path, undisturbed):
    records = run_toy(tmp_path, workers=2)
    assert contents(tmp_path) == undisturbed
    assert [record.arguments for record in records] == CELLS


def test_resuming_computes_only_what_is_missing(tmp_path):
    run(toy(), Preset.smoke, tmp_path)
    seen = []
    run(toy(), Preset.cpu, tmp_path, watch=lambda kept, total: seen.append((kept, total)))
    assert seen == [(kept, len(CELLS)) for kept in range(4, len(CELLS) + 1)]
    assert lines(tmp_path) == len(CELLS)


def test_new_version_of_a_study_is_computed_anew_beside_the_old(tmp_path):
    old = run(toy(), Preset.smoke, tmp_path)
    new = run(toy(version=2), Preset.smoke, tmp_path)
    assert {r.key for r in old}.isdisjoint(r.key for r in new)
    assert lines(tmp_path) == 8


@pytest.mark.parametrize("workers", [1, 2])
def test_failing_cell_says_which_it_was_and_the_finished_ones_are_kept(tmp_path, workers):
    with pytest.raises(NotFinite) as caught:
        run(toy(failing), Preset.cpu, tmp_path, workers)
    assert any("'row': 1" in note for note in caught.value.__notes__)
    assert lines(tmp_path) >= 3
    run(toy(), Preset.cpu, tmp_path)
    assert lines(tmp_path) == len(CELLS)


def test_worker_that_dies_is_an_error_that_names_its_cell(tmp_path):
    with pytest.raises(WorkerDied, match=r"exit code 9.*'row': 1"):
        run(toy(dying), Preset.cpu, tmp_path, workers=2)
    assert 3 <= lines(tmp_path) < len(CELLS)


def test_two_runs_on_one_file_are_refused(tmp_path):
    with ledger(toy(), tmp_path).writing(), pytest.raises(ResultsBusy, match=r"toy\.jsonl"):
        run(toy(), Preset.smoke, tmp_path)


def test_latest_results_are_of_the_largest_complete_preset_or_else_the_fullest(tmp_path):
    with pytest.raises(NoResults, match="posterity study run toy"):
        latest(toy(), tmp_path)
    run(toy(), Preset.smoke, tmp_path)
    assert latest(toy(), tmp_path)[0] == Preset.smoke
    run(toy(), Preset.cpu, tmp_path)
    assert latest(toy(), tmp_path)[0] == Preset.paper
    path = tmp_path / "toy.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:7]))
    preset, records = latest(toy(), tmp_path)
    assert (preset, len(records)) == (Preset.paper, 6)
