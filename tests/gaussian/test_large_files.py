"""Files of large priors: half of every symmetric factor, written in a stream, refused before memory or disk run out."""

import errno
import os

import pytest
import torch

import posterity as pt
from posterity.algebra import FlooredMatrix, Kronecker, scaled_identity
from posterity.errors import DamagedFile, DiskFull, TooLittleMemory
from posterity.gaussian import Gaussian, kept_frames
from posterity.gaussian.container import packed, unpacked

SIDE = 24


def factor(n, seed):
    x = torch.randn(n, n, generator=torch.Generator().manual_seed(seed))
    return x.T @ x / n


@pytest.fixture
def prior(monkeypatch):
    monkeypatch.setattr("posterity.algebra.base.LARGE", 16)
    pair = Kronecker(*(((x + x.T) / 2) for x in (factor(SIDE, 0), factor(2 * SIDE, 1))))
    mean = {"a": torch.randn(SIDE, 2 * SIDE), "b": torch.randn(2, 3)}
    return Gaussian(mean, {"a": FlooredMatrix(pair, 0.5, 0.1), "b": scaled_identity(2.0, (2, 3))})


@pytest.mark.parametrize("n", [1, 2, 255, 256, 300])
def test_a_triangle_is_the_matrix_again(n):
    x = torch.randn(n, n)
    x = x + x.T
    assert torch.equal(unpacked(packed(x), n), x)


def test_a_large_prior_is_the_same_after_a_file_of_half_its_size(prior, tmp_path):
    path = tmp_path / "p.safetensors"
    prior.save(path)
    again = pt.load(path)
    assert again.fingerprint() == prior.fingerprint()
    assert isinstance(again.precision["a"].curvature, Kronecker)
    for name, draw in prior.sample(2, generator=torch.Generator().manual_seed(0)).items():
        assert torch.equal(draw, again.sample(2, generator=torch.Generator().manual_seed(0))[name])
    whole = prior.nbytes
    assert path.stat().st_size < whole - 4 * (SIDE**2 + 4 * SIDE**2) // 2 + 4000


def test_an_order_of_entries_that_does_not_go_with_a_tensor_is_damage(prior, tmp_path, monkeypatch):
    path = tmp_path / "p.safetensors"
    prior.save(path)
    # Where nothing is large, nothing may be stored by halves.
    monkeypatch.setattr("posterity.algebra.base.LARGE", 1000)
    with pytest.raises(DamagedFile, match="lower"):
        pt.load(path)


def test_too_little_memory_is_told_before_it_is_taken(prior, tmp_path, monkeypatch):
    path = tmp_path / "p.safetensors"
    prior.save(path)
    monkeypatch.setattr("posterity.memory.available_memory", lambda: 1000)
    with pytest.raises(TooLittleMemory, match=r"needs 0\.00 GiB"):
        pt.load(path)
    with pytest.raises(TooLittleMemory, match="eigenvectors"):
        prior.keep_frames(tmp_path / "f")


def test_a_full_disk_is_told_before_writing_and_leaves_nothing(prior, tmp_path, monkeypatch):
    path = tmp_path / "p.safetensors"
    path.write_bytes(b"old")
    usage = type("usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(DiskFull, match="make room"):
        prior.save(path)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("p.safetensors", b"old")]


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(prior, tmp_path, monkeypatch):
    path = tmp_path / "p.safetensors"

    def full(file, tensors, text):
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("posterity.gaussian.container._write_into", full)
    with pytest.raises(DiskFull, match="Nothing was written"):
        prior.save(path)
    assert not list(tmp_path.iterdir())


def test_frames_are_computed_once_and_read_from_then_on(prior, tmp_path, monkeypatch):
    path, frames = tmp_path / "p.safetensors", tmp_path / "p.frames.safetensors"
    prior.save(path)
    pt.load(path).keep_frames(frames)
    monkeypatch.setattr(kept_frames, "eigenvectors", lambda *a, **k: pytest.fail("computed again"))
    again = pt.load(path)
    again.keep_frames(frames)
    torch.testing.assert_close(again.logdet(), prior.logdet(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("damage", ["bytes", "another prior", "no vectors"])
def test_frames_that_do_not_fit_are_computed_anew(prior, tmp_path, damage):
    path, frames = tmp_path / "p.safetensors", tmp_path / "p.frames.safetensors"
    prior.save(path)
    other = pt.load(path)
    other.keep_frames(frames)
    content = bytearray(frames.read_bytes())
    if damage == "bytes":
        content[-2000:] = os.urandom(2000)
    elif damage == "no vectors":
        content = bytearray(b"nothing")
    frames.write_bytes(bytes(content))
    asked = pt.load(path)
    if damage == "another prior":
        pair = Kronecker(factor(SIDE, 7), asked.precision["a"].curvature.right)
        asked = Gaussian(asked.mean, {**asked.precision, "a": FlooredMatrix(pair, 0.5, 0.1)})
    asked.keep_frames(frames)
    expected = FlooredMatrix(asked.precision["a"].curvature.to(dtype=torch.float64), 0.5, 0.1).logdet()
    torch.testing.assert_close(asked.precision["a"].logdet(), expected, rtol=1e-5, atol=1e-3)
