"""The server's key: made once, for its owner alone, and refused where it is not what it should be."""

import os
import stat
from pathlib import Path

import pytest

from headway.access.server_key import key_check, open_now, read_key, read_or_make_key, read_private
from headway.core.errors import ConfigError


def never(_: int) -> bytes:
    raise AssertionError("a key is there")


def test_a_key_is_made_on_first_use_and_then_kept(tmp_path: Path) -> None:
    path = tmp_path / "state" / "tokens.key"
    key = read_or_make_key(path, lambda num_bytes: b"k" * num_bytes)
    assert key == b"k" * 32
    assert read_or_make_key(path, never) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["tokens.key"]


def test_of_two_that_make_one_at_once_both_get_the_first(tmp_path: Path) -> None:
    path = tmp_path / "tokens.key"

    def slower(num_bytes: int) -> bytes:
        read_or_make_key(path, lambda num_bytes: b"1" * num_bytes)
        return b"2" * num_bytes

    assert read_or_make_key(path, slower) == b"1" * 32


@pytest.mark.parametrize("data", [b"", b"k" * 31, b"k" * 33, b"k" * 100_000])
def test_what_has_another_length_is_no_key(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "tokens.key"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"no key|no small file"):
        read_key(path)


@pytest.mark.parametrize(
    ("mode", "is_private"), [(0o600, True), (0o440, True), (0o644, False), (0o660, False)]
)
def test_a_key_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int, is_private: bool) -> None:
    path = tmp_path / "tokens.key"
    path.write_bytes(b"k" * 32)
    path.chmod(mode)
    if is_private:
        assert read_key(path) == b"k" * 32
    else:
        with pytest.raises(ConfigError, match="chmod 600"):
            read_key(path)


def test_a_folder_or_nothing_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_private(tmp_path, "The key")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_private(tmp_path / "none", "The key")


def test_a_pipe_that_nobody_writes_is_no_key_and_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigError, match="no small file"):
        read_private(path, "The key")
    with open_now(path) as file:
        assert file.read(10) == b""


def test_what_a_store_remembers_of_a_key_tells_keys_apart_and_is_none() -> None:
    assert key_check(b"k" * 32) == key_check(b"k" * 32)
    assert key_check(b"k" * 32) != key_check(b"l" * 32)
