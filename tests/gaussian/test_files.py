"""A file gives back the very Gaussian that was saved, whatever happens while it is written."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from gaussians import CARD, EVERY, every, gaussian, normal, one, same
from matrices import pair

import posterity as pt
from posterity import Gaussian
from posterity.algebra import Basis, DiagonalMatrix, JointEigen, Kronecker, ScaledIdentity
from posterity.data.provenance import Provenance
from posterity.errors import BadPriorFile, BlockMismatch, MissingFile, NotStorable, PosterityError
from posterity.gaussian import Card

every_structure = pytest.mark.parametrize("structure", EVERY)


def draws(g: Gaussian):
    return g.sample(3, generator=torch.Generator().manual_seed(5))


@every_structure
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_loaded_gaussian_is_the_saved_one_to_the_last_bit(structure, dtype, tmp_path):
    # Large enough that fast matrix products take other ways for other memory layouts.
    a, b = (one(structure, seed, 33, 21).to(dtype=dtype) for seed in (1, 70))
    a.save(tmp_path / "a.safetensors")
    again = pt.load(tmp_path / "a.safetensors")
    assert same(a, again)
    assert torch.equal(draws(a)["block"], draws(again)["block"])
    assert a.kl(b) == again.kl(b)
    assert b.kl(a) == b.kl(again)
    assert a.logdet() == again.logdet()
    assert a.quadratic(b.mean) == again.quadratic(b.mean)


def test_half_precision_and_mixed_precisions_are_kept(tmp_path):
    mixed = Kronecker(pair(3, 2, 0).left.float(), pair(3, 2, 0).right)
    diagonal = DiagonalMatrix(torch.ones(2, 2, dtype=torch.bfloat16))
    means = {"a": torch.zeros(3, 2).half(), "b": normal(2, 2)}
    a = Gaussian(means, {"a": mixed, "b": diagonal})
    a.save(tmp_path / "a")
    assert same(a, pt.load(tmp_path / "a"))


def test_all_structures_the_card_and_the_hashes_share_one_file(tmp_path):
    a = gaussian(every(3, 4), card=CARD)
    a.save(str(tmp_path / "a.safetensors"))
    again = pt.load(str(tmp_path / "a.safetensors"))
    assert same(a, again)
    assert again.card == CARD
    assert torch.equal(again.provenance.hashes, CARD.provenance.hashes)
    assert again.provenance.choices == CARD.provenance.choices


def test_any_name_will_do_for_a_block(tmp_path):
    names = [
        "",
        "a.b.0",
        "0.mean",
        "../../etc/x",
        "層",
        'q"uo\\te',
        "\n\0",
        "__metadata__",
        "hashes",
        "\ud800",
        "0.left.0",
    ]
    a = gaussian({name: pair(2, 1, i) for i, name in enumerate(names)})
    a.save(tmp_path / "a")
    assert pt.load(tmp_path / "a").blocks == tuple(names)


def test_other_memory_layouts_and_shared_memory_are_stored(tmp_path):
    wide, both = normal(4, 6), pair(2, 3, 0)
    means = {"t": wide.mT[:3, :2].mT, "s": wide[::2, ::2], "same": wide[:2, :3], "grad": normal(2, 3).requires_grad_()}
    a = Gaussian(means, dict.fromkeys(means, both))
    a.save(tmp_path / "a")
    assert same(a, pt.load(tmp_path / "a"))


def test_a_gaussian_without_blocks_cannot_be():
    with pytest.raises(BlockMismatch, match="at least one"):
        Gaussian({}, {})


def test_saving_twice_writes_the_same_bytes_and_leaves_nothing_else(tmp_path):
    a = gaussian(every(), card=CARD)
    a.save(tmp_path / "a")
    a.save(tmp_path / "b")
    a.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_other_tools_can_read_the_tensors(tmp_path):
    a = gaussian({"layer.0": pair(2, 3, 0)})
    a.save(tmp_path / "a.safetensors")
    tensors = safetensors.torch.load_file(tmp_path / "a.safetensors")
    assert set(tensors) == {"0.mean", "0.left.0", "0.right.0"}
    assert torch.equal(tensors["0.right.0"], a.precision["layer.0"].right)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    one("kronecker").save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert same(pt.load(tmp_path / "real"), one("kronecker"))


def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    one("kronecker").save(tmp_path / "a")
    (tmp_path / "plain").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_could_not_be_loaded_is_not_saved_and_the_old_file_stays(tmp_path):
    path, good = tmp_path / "a", pair(2, 3, 0)
    old = one("kronecker")
    old.save(path)
    mean = {"b": torch.zeros(2, 3)}
    skew = good.left + torch.tensor([[0.0, 1], [-1, 0]])
    basis = Basis(good.left, good.left, torch.zeros((), dtype=torch.float64))
    right = Basis.orthogonal(torch.eye(3, dtype=torch.float64))
    for bad in (
        Gaussian({"b": torch.full((2, 3), torch.nan)}, {"b": good}),
        Gaussian({"b": torch.zeros(2, 3, dtype=torch.int64)}, {"b": good}),
        Gaussian(mean, {"b": Kronecker.unchecked(skew, good.right)}),
        Gaussian(mean, {"b": Kronecker.unchecked(good.left * torch.inf, good.right)}),
        Gaussian(mean, {"b": ScaledIdentity(torch.tensor(-1.0), (2, 3))}),
        Gaussian(mean, {"b": DiagonalMatrix(torch.zeros(2, 3))}),
        Gaussian(mean, {"b": JointEigen(basis, right, torch.ones(2, 3))}),
        Gaussian(mean, {"b": good}, Card(count=-1)),
        Gaussian(mean, {"b": good}, Card(precision=float("nan"))),
        Gaussian(mean, {"b": good}, Card(scales={"b": (1.0, 1.0, 0.0)})),
        Gaussian(mean, {"b": good}, Card(provenance=Provenance(torch.tensor([[2] * 6, [1] * 6])))),
        Gaussian(mean, {"b": good}, Card(provenance=Provenance(torch.tensor([[2, 1]])))),
        Gaussian(mean, {"b": good}, Card(text="x" * 2**24)),
    ):
        with pytest.raises(NotStorable):
            bad.save(path)
    assert same(pt.load(path), old)
    assert os.listdir(tmp_path) == ["a"]


def test_a_batch_of_precisions_is_refused_by_name():
    batch = EVERY["kronecker"](2, 3, 0, (4,))
    with pytest.raises(BlockMismatch, match='block "b" has a batch of'):
        Gaussian({"b": torch.zeros(2, 3)}, {"b": batch})


def test_a_folder_that_is_not_there_is_pythons_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        one("kronecker").save(tmp_path / "nowhere" / "a")


def test_a_missing_file_is_both_ours_and_pythons_error(tmp_path):
    for kind in (MissingFile, FileNotFoundError, BadPriorFile, PosterityError):
        with pytest.raises(kind, match=r"nothing.*no such file"):
            pt.load(tmp_path / "nothing")


def test_the_loaded_card_can_be_changed_and_saved_again(tmp_path):
    one("sum of two").save(tmp_path / "a")
    a = pt.load(tmp_path / "a")
    b = replace(a, card=replace(a.card, text="more"))
    b.save(tmp_path / "a")
    assert pt.load(tmp_path / "a").card.text == "more"
    a.mean["block"].add_(1)  # memory of its own, which may be written to


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_kill_9_at_any_moment_of_a_save_leaves_the_old_file_or_the_new_one(tmp_path):
    script = Path(__file__).with_name("killed_saver.py")
    run = subprocess.run(
        [sys.executable, script, tmp_path / "prior"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found = run.stdout.split()
    # Killed on purpose between the steps of one save, and then at random within many.
    assert found[:5] == ["old", "old", "old", "new", "new"]
    assert len(found) == 5 + 12
    assert set(found[5:]) <= {"old", "new"}


@pytest.mark.parametrize("structure", ["joint eigen", "orthogonal eigen"])
def test_a_basis_that_was_rounded_to_single_precision_once_is_stored(structure, tmp_path):
    """As EKFAC's are: float32 eigenvectors, combined with a prior in float64."""
    a = one(structure, 2, 20, 30).to(dtype=torch.float32).to(dtype=torch.float64)
    a.save(tmp_path / "a")
    assert same(a, pt.load(tmp_path / "a"))
