"""A file is there whole or not at all, and what cannot be written is told beforehand."""

import os
from pathlib import Path

import pytest

from headway.core.errors import ConfigError
from headway.lab.atomic_file import check_writable, write_whole


def test_a_file_is_replaced_and_nothing_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    check_writable(path, "The report")
    assert path.read_text() == "old"
    write_whole(path, "neü \ud800", "The report")
    assert path.read_text("utf-8") == "neü \\ud800"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_file_has_the_mode_that_any_other_would_have(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_whole(tmp_path / "report.html", "", "The report")
    assert (tmp_path / "report.html").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_link_keeps_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "new", "The report")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ConfigError, match=r"The report cannot be written to .*: No space left on device\."):
        write_whole(path, "new", "The report")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/report.html", "No such file or directory"),
        ("file/report.html", "Not a directory"),
        ("folder", "is no file"),
        ("/dev/null", "is no file"),
        ("/proc/report.html", "No such file or directory|Permission denied"),
    ],
)
def test_what_cannot_be_written_is_told_beforehand(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=reason) as error:
        check_writable(tmp_path / name, "The report")
    assert "\n" not in str(error.value)


def test_a_name_that_is_too_long_is_told_beforehand(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="File name too long"):
        check_writable(tmp_path / ("x" * 300), "The report")
