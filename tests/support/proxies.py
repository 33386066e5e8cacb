"""A real nginx in front of a server, whose worker a test may kill, and curl as its client. Both on loopback only."""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.wire.sse_reader import SseEvent, SseReader

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
CURL = shutil.which("curl")

needs_nginx = pytest.mark.skipif(NGINX is None, reason="needs the Debian package nginx-light")
needs_curl = pytest.mark.skipif(CURL is None, reason="needs the Debian package curl")

_START_ATTEMPTS = 5
"""Another process may take a free port before nginx does."""
_LIMIT_S = 60
"""Of nginx's end, and of a whole exchange: what is held back for ever fails then, by the end of curl's output."""


class Nginx:
    """A master and one worker. `ports`: where its servers listen, as many as the configuration has `{port}`s.

    `servers`: what stands in `http { … }`, with `{port}` for each port; everything else is nginx's default.
    """

    def __init__(self, folder: Path, servers: str) -> None:
        self._folder = folder
        self.ports: list[int] = []
        self._worker = 0
        for _ in range(_START_ATTEMPTS):
            self.ports = [_free_port() for _ in range(servers.count("{port}"))]
            self._process = self._start(servers)
            if self._next_worker():
                return
            self.end()
        raise RuntimeError("nginx does not start")

    def kill_worker(self) -> None:
        """End whoever holds the connections at once; return when there is another. The ports stay open."""
        os.kill(self._worker, signal.SIGKILL)
        assert self._next_worker(), "nginx has no worker any more"

    def end(self) -> None:
        """End it, which breaks its connections."""
        self._process.terminate()  # a fast shutdown
        self._process.wait(_LIMIT_S)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _start(self, servers: str) -> "subprocess.Popen[str]":
        assert NGINX is not None
        for port in self.ports:
            servers = servers.replace("{port}", f"127.0.0.1:{port}", 1)
        path = self._folder / "nginx.conf"
        path.write_text(_configuration(self._folder, servers))
        command = [NGINX, "-e", "stderr", "-p", str(self._folder), "-c", str(path)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def _next_worker(self) -> bool:
        """Wait until a worker starts, by which time the ports are open; return whether one did."""
        assert self._process.stderr is not None
        for line in self._process.stderr:  # what it says later fits into the pipe
            if match := re.search(r"start worker process (\d+)", line):
                self._worker = int(match[1])
                return True
        return False


@contextmanager
def nginx(folder: Path, servers: str) -> Iterator[Nginx]:
    """Start nginx with its files in `folder`; end it when left."""
    server = Nginx(folder, servers)
    try:
        yield server
    finally:
        server.end()


@contextmanager
def curl(url: str, *options: str) -> Iterator[Iterator[SseEvent | str]]:
    """Ask with curl; yield the iterator of what comes: events, and comments as text. Leaving ends curl."""
    assert CURL is not None
    command = [CURL, "--silent", "--show-error", "--no-buffer", "--max-time", str(_LIMIT_S), *options, url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield _read(process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _read(process: "subprocess.Popen[bytes]") -> Iterator[SseEvent | str]:
    assert process.stdout is not None
    reader = SseReader()
    for line in process.stdout:
        if line.startswith(b":"):
            yield line.decode()
        yield from reader.feed(line)


def _configuration(folder: Path, servers: str) -> str:
    # A worker of a master that runs as root would be nobody, who may not enter a test's folder.
    user = f"user {pwd.getpwuid(0).pw_name} {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "\n".join(f"    {kind}_temp_path {folder}/{kind};" for kind in kinds)
    return f"""
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr notice;
events {{}}
http {{
    access_log off;
{folders}
{servers}
}}
"""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
