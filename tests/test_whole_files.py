"""Whatever goes wrong while a file is written, the old one or the new one is there, whole, and nothing else."""

from __future__ import annotations

import ast
import errno
import os
from pathlib import Path

import pytest
import torch

import posterity
from posterity.data.hashes import fingerprint
from posterity.errors import DiskFull, MissingFolder, NotWritable, PosterityError
from posterity.files import check_place, replacing, write_whole

SOURCE = Path(posterity.__file__).parent


def test_a_file_is_written_and_replaced_and_nothing_is_left_beside_it(tmp_path):
    target = tmp_path / "a.txt"
    write_whole(target, "old")
    write_whole(target, "néw")
    assert target.read_bytes() == "néw".encode()
    assert list(tmp_path.iterdir()) == [target]


REFUSALS = {
    errno.ENOSPC: DiskFull,
    errno.EDQUOT: DiskFull,
    errno.EFBIG: DiskFull,
    errno.EROFS: NotWritable,
    errno.EACCES: NotWritable,
    errno.EIO: NotWritable,
}


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_what_the_system_refuses_has_a_name_and_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch, call, code):
    target = tmp_path / "a.txt"
    write_whole(target, "old")

    def refused(*args):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refused)
        with pytest.raises(REFUSALS[code]) as caught:
            write_whole(target, "new")
    assert str(target) in str(caught.value)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_errors_of_other_files_pass_as_they_are(tmp_path):
    def write() -> None:
        with replacing(tmp_path / "a") as draft:
            draft.write_bytes((tmp_path / "no such file").read_bytes())

    with pytest.raises(FileNotFoundError) as caught:
        write()
    assert not isinstance(caught.value, PosterityError)


class Torn(Exception):
    """As safetensors tells of it: in the words of Rust."""


def test_a_full_disk_behind_another_library_has_its_name(tmp_path):
    def write(make) -> None:
        with replacing(tmp_path / "a"):
            make()

    def in_words() -> None:
        raise Torn("Error while serializing: I/O error: No space left on device (os error 28)")

    def in_context() -> None:
        try:
            raise OSError(errno.ENOSPC, "no space left on device")
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")

    for make in (in_words, in_context):
        with pytest.raises(DiskFull):
            write(make)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC], ids=errno.errorcode.get)
def test_where_nothing_can_be_written_is_told_before_the_work(tmp_path, monkeypatch, code):
    def refused(*args):
        raise OSError(code, os.strerror(code), str(args[0]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(REFUSALS[code]):
            check_place(tmp_path / "a")
    with pytest.raises(MissingFolder, match="mkdir -p"):
        check_place(tmp_path / "no" / "a")
    check_place(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_place_that_is_no_plain_file_is_refused(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no named pipes here")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotWritable, match="no plain file"):
        check_place(tmp_path / "pipe")
    with pytest.raises(NotWritable, match="is a folder"):
        write_whole(tmp_path, "text")


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


WRITES = {
    "write_text",
    "write_bytes",
    "save",
    "savez",
    "savez_compressed",
    "save_file",
    "copyfile",
    "touch",
    "write_table",
}
"""Calls that make or change a file. `save` counts for torch and numpy: objects of ours save through this module."""
WRITERS = {"replacing", "writing"}


def in_place(tree: ast.AST) -> list[int]:
    """Lines that write a file, and not to a draft."""
    found: list[int] = []

    def walk(node: ast.AST, drafted: bool) -> None:
        if isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items]
            drafted |= any(isinstance(c, ast.Call) and getattr(c.func, "id", "") in WRITERS for c in calls)
        if isinstance(node, ast.Call) and not drafted and _writes(node):
            found.append(node.lineno)
        for child in ast.iter_child_nodes(node):
            walk(child, drafted)

    walk(tree, False)
    return found


def _writes(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    of = getattr(getattr(call.func, "value", None), "id", "")
    if name == "open":
        words = [a.value for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant)]
        return any(
            isinstance(w, str) and len(w) <= 3 and set(w) & set("wax+") and set(w) <= set("rwaxbt+") for w in words
        )
    return name in WRITES and (name != "save" or of in ("torch", "np"))


def test_a_write_in_place_would_be_found():
    lines = ["path.write_text(x)", "open(p, 'wb')", "path.open(mode='r+b')", "np.savez(p)", "torch.save(x, p)"]
    assert in_place(ast.parse("\n".join(lines))) == [1, 2, 3, 4, 5]
    fine = ["open(p)", "open(p, 'rb')", "with replacing(p) as d:\n    d.write_text(x)", "fit.save(p)"]
    assert in_place(ast.parse("\n".join(fine))) == []


def test_everything_that_writes_writes_a_draft():
    drafting = {SOURCE / "files.py", SOURCE / "workflow/folders.py"}  # the writer itself; a folder is drafted whole
    read = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py") if path not in drafting}
    assert {str(path): lines for path, tree in read.items() if (lines := in_place(tree))} == {}
