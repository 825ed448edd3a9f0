"""Whatever goes wrong while a file is written, the old one or the new one is there, whole, and nothing else."""

from __future__ import annotations

import errno
import os

import pytest
import torch

from posterity.curvature.hashes import fingerprint
from posterity.files import replacing, write_whole


def test_a_file_is_written_and_replaced_and_nothing_is_left_beside_it(tmp_path):
    target = tmp_path / "a.txt"
    write_whole(target, "old")
    write_whole(target, "néw")
    assert target.read_bytes() == "néw".encode()
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch, call):
    target = tmp_path / "a.txt"
    write_whole(target, "old")

    def full(*args):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="no space"):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_while_writing_leaves_the_old_file_and_no_draft(tmp_path):
    target = tmp_path / "a.txt"
    write_whole(target, "old")

    def interrupted() -> None:
        with replacing(target) as draft:
            draft.write_text("half of the new o")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_file_and_folder_reach_the_disk_in_that_order(tmp_path, monkeypatch):
    synced: list[str] = []
    plain = os.fsync

    def noting(descriptor):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        plain(descriptor)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the names of open files cannot be looked up here")
    monkeypatch.setattr(os, "fsync", noting)
    write_whole(tmp_path / "a.txt", b"bytes")
    assert [name.endswith(".tmp") for name in synced] == [True, False]
    assert synced[1] == tmp_path.name


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    write_whole(real, "old")
    link.symlink_to(real)
    write_whole(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_others_may_read_the_file_as_the_user_allows(tmp_path):
    before = os.umask(0o022)
    try:
        with replacing(tmp_path / "a") as draft:
            draft.chmod(0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_fingerprints_depend_on_values_alone():
    x = torch.arange(6).reshape(2, 3)
    first = fingerprint(["a", x])
    assert len(first) == 32
    assert fingerprint(["a", x.float()]) == fingerprint(["a", x.T.contiguous().T]) == first
    assert first.startswith(fingerprint(["a", x], digits=8))
    assert (
        len({first, fingerprint(["b", x]), fingerprint(["a", x + 1]), fingerprint(["a", x.T]), fingerprint([x])}) == 5
    )
