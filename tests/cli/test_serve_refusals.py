"""What keeps a server from starting is one line and exit code 2, also when the engine process is what found it."""

import errno
import os
import socket
from pathlib import Path

import pytest

from headway.cli.http_server import bind, listen
from headway.core.errors import ConfigError
from support.real_server import SMALL, headway

pytestmark = pytest.mark.native


def refusal(*arguments: str, env: dict[str, str] | None = None) -> str:
    """Run a command that must end with one line and exit code 2; return the line without its beginning."""
    done = headway(*arguments, env=env)
    assert (done.status, done.stdout) == (2, ""), done
    assert done.stderr.startswith("headway: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("headway: ")


@pytest.mark.parametrize("num_bytes", [0, 3, 1_000, 100_000])
def test_a_truncated_file(tiny_model: Path, tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(tiny_model.read_bytes()[:num_bytes])
    assert str(path) in refusal("serve", str(path), *SMALL)


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "garbage.gguf"
    path.write_bytes(bytes(range(256)) * 64)
    assert "not a GGUF file" in refusal("serve", str(path), *SMALL)
    assert "not a GGUF file" in refusal("chat", str(path), "--prompt", "x")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "missing.gguf")
    assert path in refusal("serve", path, *SMALL)
    assert path in refusal("chat", path, "--prompt", "x")


def test_a_cache_for_less_than_one_block(tiny_model: Path) -> None:
    assert "4096" in refusal("serve", str(tiny_model), "--port", "0", "--kv-memory", "1K")


def test_a_cache_that_no_machine_has(tiny_model: Path) -> None:
    refusal("serve", str(tiny_model), "--port", "0", "--kv-memory", "900T")


def test_a_context_that_the_model_does_not_have(tiny_model: Path) -> None:
    assert "32768" in refusal("serve", str(tiny_model), *SMALL, "--max-context", "999999999")


def test_an_address_that_is_not_ours(tiny_model: Path) -> None:
    assert "--host" in refusal("serve", str(tiny_model), "--host", "192.0.2.1", "--port", "0")  # TEST-NET-1


@pytest.mark.parametrize("host", ["a" * 64, "\u00e9" * 64, "a..b"])
def test_a_host_that_no_host_can_be_called(host: str) -> None:
    with pytest.raises(ConfigError, match=r"Cannot listen on .*choose another address"):
        bind(host, 0)


def test_a_port_that_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), address)

    monkeypatch.setattr(socket, "socket", Socket)  # as root, which tests may run as, every port is ours
    with pytest.raises(ConfigError, match=r"port 80 \(Permission denied\); choose another address"):
        bind("127.0.0.1", 80)


def test_of_two_that_start_at_once_the_second_is_told_the_same() -> None:
    # Linux lets two take an address before either of them listens (SO_REUSEADDR).
    with bind("127.0.0.1", 0) as first, bind("127.0.0.1", first.getsockname()[1]) as second:
        listen(first, "127.0.0.1")
        with pytest.raises(ConfigError, match=r"\(Address already in use\); choose another address"):
            listen(second, "127.0.0.1")


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    assert "config.json" in refusal("serve", str(tmp_path), *SMALL)


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.gguf")
    assert "not a regular file" in refusal("serve", str(tmp_path / "fifo.gguf"), *SMALL)


def test_a_hub_model_that_cannot_be_fetched(tmp_path: Path) -> None:
    env = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    for arguments in (("serve", "owner/name", *SMALL), ("chat", "owner/name", "--prompt", "x")):
        assert "unset HF_HUB_OFFLINE" in refusal(*arguments, env=env)


def test_a_model_cache_that_cannot_be_written() -> None:
    assert "HEADWAY_CACHE" in refusal("pull", "smollm2", env={"HEADWAY_CACHE": "/proc/nowhere"})
