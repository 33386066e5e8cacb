"""Blocks in files: across restarts and other models, within the budget, and whatever the file system does."""

import errno
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.kv import block_files
from headway.kv.block_files import BlockFiles, FolderInUse, write_file
from headway.kv.stored_block import StoredBlock, Wanted, encode, store

DATA_BYTES = 1000
FILE_BYTES = len(encode(store(b"\0" * 16, b"root", b"0000", b"x" * DATA_BYTES), b"model"))


def block(number: int) -> StoredBlock:
    return store(bytes([number]) * 16, b"root", bytes([number]) * 4, bytes([number]) * DATA_BYTES)


def wanted(number: int) -> Wanted:
    return Wanted(bytes([number]) * 16, b"root", bytes([number]) * 8, 4)


def open_files(folder: Path, identity: str = "model", num_blocks: int = 100) -> BlockFiles:
    return BlockFiles(folder, identity, num_blocks * FILE_BYTES)


def paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")


def set_age(files: list[Path]) -> None:
    """Make the first file the oldest, the last the newest: writes within a tick of the clock have one time."""
    for index, path in enumerate(files):
        os.utime(path, (1_000 + index, 1_000 + index))


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    assert files.write(block(1))
    assert not files.write(block(1))
    files.close()
    again = open_files(tmp_path)
    assert block(1).digest in again
    assert again.read(wanted(1)) == block(1)
    assert again.read(wanted(2)) is None
    assert again.num_bytes == FILE_BYTES


def test_others_may_not_read_what_people_said(tmp_path: Path) -> None:
    open_files(tmp_path / "kv").write(block(1))
    assert [path.stat().st_mode & 0o77 for path in paths(tmp_path)] == [0]
    assert [path.stat().st_mode & 0o77 for path in (tmp_path / "kv").glob("kv-*")] == [0]


@pytest.mark.parametrize("damage", ["flipped", "torn", "empty", "gone"])
def test_a_damaged_file_is_a_miss_and_goes(tmp_path: Path, damage: str) -> None:
    files = open_files(tmp_path)
    files.write(block(1))
    (path,) = paths(tmp_path)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        path.write_bytes({"flipped": flipped, "torn": content[:-500], "empty": b""}[damage])
    assert files.read(wanted(1)) is None
    assert block(1).digest not in files
    assert paths(tmp_path) == []
    assert files.num_bytes == 0
    assert files.write(block(1))
    assert files.read(wanted(1)) == block(1)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "grown"])
def test_what_took_a_files_place_is_a_miss_and_holds_up_nobody(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = open_files(tmp_path / "kv")
    files.write(block(1))
    (path,) = paths(tmp_path)
    elsewhere = path.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    assert files.read(wanted(1)) is None
    assert elsewhere.stat().st_size == FILE_BYTES
    assert "could not be read" in caplog.text


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_nothing_is_written_through_what_took_a_files_place(tmp_path: Path, kind: str) -> None:
    path, elsewhere = tmp_path / "block.tmp", tmp_path / "elsewhere"
    elsewhere.touch()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"No such device|Too many levels"):
        write_file(path, b"said")
    assert elsewhere.stat().st_size == 0


def test_each_kind_of_failure_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = open_files(tmp_path / "kv")
    for number in (1, 2):
        files.write(block(number))
    shutil.rmtree(tmp_path / "kv")
    for number in (1, 2):
        assert files.read(wanted(number)) is None
        assert not files.write(block(number))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "a KV block could not be read",
        "a KV block could not be written",
    ]


def test_a_folder_that_cannot_be_used_is_left_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(block_files, "_blocks_by_age", refuse)
        with pytest.raises(PermissionError):
            open_files(tmp_path)
    assert open_files(tmp_path).write(block(1))


def test_another_users_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = open_files(tmp_path, "other")
    other.write(block(1))
    other.close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert open_files(tmp_path).num_bytes == 0


def refuse(_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_another_content_under_the_same_digest_is_a_miss_and_stays(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    files.write(block(1))
    assert files.read(Wanted(block(1).digest, b"root", b"zzzz", 4)) is None
    assert files.read(wanted(1)) == block(1)


def test_the_least_recently_used_go_first_also_after_a_restart(tmp_path: Path) -> None:
    files = open_files(tmp_path, num_blocks=3)
    for number in (1, 2, 3):
        files.write(block(number))
    files.read(wanted(1))
    files.write(block(4))
    assert [number for number in (1, 2, 3, 4) if block(number).digest in files] == [1, 3, 4]
    files.close()
    folder = paths(tmp_path)[0].parent
    set_age([folder / block(number).digest.hex() for number in (4, 1, 3)])
    again = open_files(tmp_path, num_blocks=3)
    again.write(block(5))
    assert [number for number in (1, 3, 4, 5) if block(number).digest in again] == [1, 3, 5]
    assert again.num_bytes == 3 * FILE_BYTES


def test_a_smaller_budget_is_kept_from_the_start(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    for number in range(5):
        files.write(block(number))
    files.close()
    assert open_files(tmp_path, num_blocks=2).num_bytes == 2 * FILE_BYTES
    assert len(paths(tmp_path)) == 2


def test_a_block_over_the_budget_moves_nobody(tmp_path: Path) -> None:
    files = open_files(tmp_path, num_blocks=1)
    files.write(block(1))
    assert not files.write(store(b"\2" * 16, b"root", b"2222", b"x" * (DATA_BYTES + 1)))
    assert files.read(wanted(1)) == block(1)


def test_another_models_blocks_are_never_read_and_go_first(tmp_path: Path) -> None:
    old = open_files(tmp_path, "old model", num_blocks=3)
    for number in (1, 2):
        old.write(block(number))
    old.close()
    extra = len("old model") - len("model")
    files = BlockFiles(tmp_path, "model", 3 * FILE_BYTES + 2 * extra)
    assert files.num_bytes == 2 * (FILE_BYTES + extra)
    assert files.read(wanted(1)) is None
    files.write(block(3))
    files.write(block(4))
    assert files.read(wanted(3)) == block(3)
    assert len(paths(tmp_path)) == 3
    files.write(block(5))
    assert files.num_bytes == 3 * FILE_BYTES
    assert [number for number in (3, 4, 5) if block(number).digest in files] == [3, 4, 5]


def test_a_file_of_another_model_in_our_folder_is_a_miss(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    files.write(block(1))
    (path,) = paths(tmp_path)
    path.write_bytes(encode(block(1), b"other"))
    assert files.read(wanted(1)) is None


def test_what_is_not_ours_is_neither_counted_nor_removed(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    files.write(block(1))
    files.close()
    folder = paths(tmp_path)[0].parent
    for path in (
        tmp_path / "letter",
        tmp_path / "kv-notes" / "aabbccdd",
        folder / "readme",
        folder / "abc.tmp",
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 10_000)
    (tmp_path / ("kv-" + "0" * 32)).symlink_to(tmp_path / "kv-notes")
    (folder / ("00" * 16)).symlink_to(tmp_path / "letter")
    again = BlockFiles(tmp_path, "model", 1)
    assert again.num_bytes == 0
    assert (folder / "readme").exists()
    assert (tmp_path / "letter").exists()
    assert (tmp_path / "kv-notes" / "aabbccdd").exists()
    assert (folder / ("00" * 16)).is_symlink()


def test_what_a_crash_left_half_written_goes(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    files.write(block(1))
    files.close()
    (path,) = paths(tmp_path)
    path.with_suffix(".tmp").write_bytes(b"half")
    files = open_files(tmp_path)
    assert paths(tmp_path) == [path]
    assert files.num_bytes == FILE_BYTES


def test_a_full_disk_is_logged_once_and_costs_misses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_full = True

    def write(path: Path, content: bytes) -> None:
        if is_full:
            write_file(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_file(path, content)

    files = BlockFiles(tmp_path, "model", 100 * FILE_BYTES, write)
    with caplog.at_level(logging.WARNING):
        assert [files.write(block(number)) for number in range(3)] == [False] * 3
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert paths(tmp_path) == []
    assert files.read(wanted(1)) is None
    is_full = False
    assert files.write(block(1))
    assert files.read(wanted(1)) == block(1)


def test_a_second_process_goes_without(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    code = (
        "import sys, pathlib; from headway.kv.block_files import *\n"
        "try: BlockFiles(pathlib.Path(sys.argv[1]), 'model', 1000)\n"
        "except FolderInUse: print('in use')"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "in use\n"
    with pytest.raises(FolderInUse, match="another process uses"):
        open_files(tmp_path, "other model")
    files.close()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        open_files(tmp_path / "file")
