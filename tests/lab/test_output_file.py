"""A file that is written is whole, and one that cannot be is told at once."""

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from headway.core.errors import ConfigError
from headway.lab.output_file import check_writable, write_whole


def test_what_can_be_written_is_found_so_and_left_alone(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"old")
    for path in (there, tmp_path / "new"):
        check_writable(path)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert there.read_bytes() == b"old"

    def write(file: BinaryIO) -> None:
        file.write(b"new")

    write_whole(there, write)
    assert there.read_bytes() == b"new"
    assert there.stat().st_mode & 0o777 == 0o666 & ~_umask()


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path, "no regular file"),
        (Path("/dev/null"), "no regular file"),  # root could replace it
        (tmp_path / "pipe", "no regular file"),
        (tmp_path / "no" / "file", "No such file"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(ConfigError, match=reason) as caught:
            check_writable(path)
        assert "\n" not in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
