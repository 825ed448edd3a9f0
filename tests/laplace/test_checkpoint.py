"""A run that is killed loses at most an epoch, and goes on to the same bits."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from training_worker import EPOCHS, interruptible, network, task

import posterity as pt
from posterity.errors import BadCheckpoint
from posterity.laplace import checkpoint as module

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def straight():
    """The run that nothing interrupts."""
    return interruptible(None)


def same(model, history, straight):
    assert history == straight[1]
    for name, value in straight[0].state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, straight):
    path = tmp_path / "run.pt"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    }
    process = subprocess.Popen([sys.executable, str(HERE / "training_worker.py"), "alone", str(path)], env=environment)
    try:
        deadline = time.monotonic() + 60
        while not path.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.1))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
    done = len(module.read_state(path)["epochs"])
    assert 1 <= done < EPOCHS
    # Another seed in this process: what the run depends on is in the file.
    same(*interruptible(path, seed=99), straight)


@pytest.mark.parametrize("epochs", [1, 7])
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path, straight, epochs):
    interruptible(tmp_path / "run.pt", epochs)
    same(*interruptible(tmp_path / "run.pt", seed=99), straight)


def test_a_finished_run_is_not_run_again(tmp_path, straight, monkeypatch):
    interruptible(tmp_path / "run.pt")
    monkeypatch.setattr(module.Checkpoint, "note", lambda *_: pytest.fail("an epoch was run"))
    same(*interruptible(tmp_path / "run.pt", seed=99), straight)


def test_a_kill_while_saving_leaves_the_epoch_before(tmp_path, straight, monkeypatch):
    path = tmp_path / "run.pt"
    interruptible(path, 3)
    real, calls = torch.save, []

    def half(state, file):
        calls.append(file)
        file.write(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        interruptible(path, 4)
    assert calls
    monkeypatch.setattr(torch, "save", real)
    same(*interruptible(path, seed=99), straight)
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]  # and nothing is left lying about


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "other", "part missing", "wrong kinds"])
def test_a_damaged_checkpoint_is_refused_and_the_model_left_alone(tmp_path, damage):
    path = tmp_path / "run.pt"
    interruptible(path, 2)
    content = path.read_bytes()
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "flipped":
            path.write_bytes(bytes(b ^ 255 for b in content[:2000]) + content[2000:])
        case "other":
            torch.save({"model": network().state_dict()}, path)
        case "part missing":
            state = module.read_state(path)
            del state["optimiser"]["param_groups"]
            module.write_state(path, state)
        case "wrong kinds":
            module.write_state(path, module.read_state(path) | {"seed": "seven", "settings": [], "best": 9})
    model = network(norm=True, dropout=True)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    options = {"epochs": 3, "batch_size": 8, "lr": 1e-2, "halve_after": 2, "stop_after": EPOCHS, "progress": False}
    with pytest.raises(BadCheckpoint, match=r"is not a checkpoint of this training .*remove it to start again"):
        pt.train(model, task(), pt.isotropic(model, 0.5), checkpoint=path, **options)
    assert all(torch.equal(model.state_dict()[k], v) for k, v in before.items())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch_size": 16}, "batch_size was 8 and is 16"),
        ({"lr": 0.1}, "the optimiser was Adam, lr 0.01 and is Adam, lr 0.1"),
        ({"clip": 1.0}, "clip was None and is 1.0"),
        ({"prior": 0.6}, "the prior was .* and is "),
        ({"prior": None}, "the prior was .* and is none"),
        ({"data": 40}, "the number of examples was 45 and is 36"),
        ({"validation": None}, "the number of examples was 45 and is 50"),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_the_checkpoint_of_another_training_is_refused(tmp_path, change, says):
    def run(path, prior=0.5, data=50, batch_size=8, lr=1e-2, **options):
        model = network()
        given = None if prior is None else pt.isotropic(model, prior)
        return pt.train(
            model, task(data), given, batch_size=batch_size, lr=lr, epochs=1, checkpoint=path, progress=False, **options
        )

    run(tmp_path / "run.pt")
    with pytest.raises(BadCheckpoint, match=says):
        run(tmp_path / "run.pt", **change)


def test_a_network_of_another_shape_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "run.pt"
    pt.train(network(), task(), epochs=1, checkpoint=path, progress=False)
    other = network(norm=True)
    before = {k: v.clone() for k, v in other.state_dict().items()}
    with pytest.raises(BadCheckpoint):
        pt.train(other, task(), epochs=2, checkpoint=path, progress=False)
    assert all(torch.equal(other.state_dict()[k], v) for k, v in before.items())


def test_a_loader_with_a_generator_of_its_own_goes_on_in_its_order(tmp_path):
    x, y = task()

    def run(path, epochs, seed):
        model = network()
        loader = DataLoader(TensorDataset(x, y), 8, shuffle=True, generator=torch.Generator().manual_seed(seed))
        return model, pt.train(model, loader, validation=(x, y), epochs=epochs, checkpoint=path, progress=False)

    model, history = run(tmp_path / "one.pt", 5, 0)
    run(tmp_path / "two.pt", 2, 0)
    again, resumed = run(tmp_path / "two.pt", 5, 1)
    assert history.epochs == resumed.epochs
    assert torch.equal(model[0].weight, again[0].weight)


def test_a_checkpoint_of_other_data_of_equal_size_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    pt.train(network(), task(), epochs=1, checkpoint=path, progress=False)
    x, y = task()
    with pytest.raises(BadCheckpoint, match=r"the data was .* and is "):
        pt.train(network(), (x + 0.1, y), epochs=2, checkpoint=path, progress=False)


def test_a_checkpoint_goes_on_whatever_it_is_called(tmp_path):
    path = tmp_path / "run.safetensors"
    first, second = (pt.train(network(), task(), epochs=n, checkpoint=path, progress=False) for n in (1, 3))
    assert second.epochs[:1] == first.epochs
    assert len(second.epochs) == 3
