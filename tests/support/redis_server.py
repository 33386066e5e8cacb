"""A real redis-server on a free loopback port, with a folder of its own, which a test may kill, pause and start again."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REDIS = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(REDIS is None, reason="needs the Debian package redis-server")

_START_ATTEMPTS = 5
"""Another process may take the free port before Redis does."""


class RedisServer:
    """One server at a time. `url` stays the same when it is started again; what it held is gone unless it writes it down.

    `arguments` go to the command, such as `"--appendonly", "yes", "--appendfsync", "always"` to write down everything.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        for _ in range(_START_ATTEMPTS):
            self.port = _free_port()
            if self._started():
                return
        raise RuntimeError("redis-server does not start")

    @property
    def url(self) -> str:
        """Where it is, for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it again, on the same port."""
        assert self._process is None, "it runs already"
        if not self._started():
            raise RuntimeError(f"redis-server does not start again on port {self.port}")

    def pause(self) -> None:
        """Let it take connections and answer nothing until `resume`: a server that is too slow."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again, also what was asked meanwhile."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, paused or not; connections break. Does nothing where none runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def _started(self) -> bool:
        assert REDIS is not None
        command = [REDIS, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder)]
        options = ["--daemonize", "no", "--save", "", *self._arguments]
        self._process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:  # what it says later fits into the pipe
            if "Ready to accept connections" in line:
                return True
        self.kill()  # its output ended: it did
        return False

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "it does not run"
        return self._process


@contextmanager
def redis_server(folder: Path, *arguments: str) -> Iterator[RedisServer]:
    """Start a server that keeps its files in `folder`; end it when left."""
    server = RedisServer(folder, *arguments)
    try:
        yield server
    finally:
        server.kill()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
