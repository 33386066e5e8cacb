"""This side of the conversation with a driver: starts a peer's process, gives commands, ends it."""

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from peers.places import HERE, LLAMA_CPP, OPENVINO, Cache

MODULES = {LLAMA_CPP: "peers.drivers.llama_cpp", OPENVINO: "peers.drivers.openvino_genai"}


_LAST_WORDS_S = 30
"""How long a process that said no more may take to end and tell why."""


class DriverFailed(Exception):
    """The peer's process ended or would not start; its last words are in the message."""


class Driver:
    """A peer with a model loaded. Settings that are None are left to the peer's default."""

    def __init__(self, cache: Cache, peer: str, model: Path, threads: int, settings: dict[str, Any]) -> None:
        given = {key: value for key, value in settings.items() if value is not None}
        command = [str(cache.python(peer)), "-m", MODULES[peer], str(model), str(threads), json.dumps(given)]
        self._log = cache.root / f"driver-{peer}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(HERE.parent)},
                text=True,
            )
        try:
            self.description = self._answer()
        except BaseException:
            self.close()
            raise

    def measure(self, command: dict[str, Any]) -> float:
        """Return the seconds that a command took; raises DriverFailed."""
        try:
            print(json.dumps(command), file=_open(self._process.stdin), flush=True)
        except BrokenPipeError:
            raise self._failed() from None
        seconds: float = self._answer()["seconds"]
        return seconds

    def close(self) -> None:
        """End the process; it has nothing to save."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        line = _open(self._process.stdout).readline()
        if not line:
            raise self._failed()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self) -> DriverFailed:
        try:
            self._process.wait(timeout=_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return DriverFailed(lines[-1] if lines else "it ended without a word")


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
