"""The `headway` command in a process of its own: run it, serve with it, look at it from outside. Every wait is bounded."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

COMMAND = (sys.executable, "-m", "headway.cli.main")
ENGINE_MODULE = "headway.engine.worker"
LIMIT_S = 60.0
"""A loaded machine is slow; what hangs fails all the same."""
SMALL = ("--port", "0", "--threads", "1", "--kv-memory", "16M")
"""Options for a server beside which other tests run."""


def headway(*arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> "Finished":
    """Run the command to its end."""
    done = subprocess.run(
        (*COMMAND, *arguments),
        input=stdin.encode(),
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return Finished(
        done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str


def eventually(check: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    """Return whether `check` came true in time. Other processes tell nobody when they change: this has to look."""
    end_s = time.monotonic() + limit_s
    while not check():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.005)
    return True


def is_alive(pid: int) -> bool:
    """Return whether a process still runs; one that nobody has reaped does not."""
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command's name: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_settled(pid: int) -> bool:
    """Return whether the main thread of a process sleeps and goes on sleeping, as one that waits for input does."""

    def look() -> tuple[str, str]:
        status = Path(f"/proc/{pid}/status").read_text()
        return _stat(pid)[0], status.partition("\nvoluntary_ctxt_switches:")[2]

    before = look()
    time.sleep(0.02)
    return before[0] == "S" and look() == before


def engine_of(pid: int) -> int | None:
    """Return the engine process that `pid` started, if there is one."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            if int(_stat(int(folder.name))[1]) == pid and ENGINE_MODULE in (folder / "cmdline").read_text():
                return int(folder.name)
        except OSError:  # it has ended meanwhile
            continue
    return None


def wait_for_engine(pid: int) -> int:
    """Wait until `pid` has started an engine process and return its id."""
    assert eventually(lambda: engine_of(pid) is not None)
    engine = engine_of(pid)
    assert engine is not None
    return engine


def num_descriptors(pid: int) -> int:
    """Return how many files and sockets a process holds open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


class RealServer:
    """A `headway serve` that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdout: str, stderr_path: Path) -> None:
        self.process = process
        self.stdout = stdout
        self._stderr_path = stderr_path
        match = re.search(r"http://127\.0\.0\.1:(\d+)", stdout)
        assert match is not None, stdout
        self.url = match[0]
        self.port = int(match[1])
        self.engine_pid = wait_for_engine(process.pid)

    @property
    def stderr(self) -> str:
        """What it logged so far."""
        return self._stderr_path.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        return self.process.wait(LIMIT_S)

    def get(self, path: str) -> httpx2.Response:
        """GET `path`."""
        return httpx2.get(self.url + path, timeout=LIMIT_S)

    def complete(self, prompt: str = "def f", **fields: object) -> httpx2.Response:
        """POST a text completion, greedy unless `fields` say otherwise."""
        return httpx2.post(self.url + "/v1/completions", json=_body(prompt, fields), timeout=LIMIT_S)

    @contextmanager
    def stream(self, prompt: str = "def f", **fields: object) -> Iterator[Iterator[str]]:
        """POST a streaming text completion; yield the iterator of its events' data. Leaving closes the connection."""
        body = {"stream": True, "stream_options": {"include_usage": True}, **_body(prompt, fields)}
        with httpx2.stream("POST", self.url + "/v1/completions", json=body, timeout=LIMIT_S) as response:
            assert response.status_code == 200
            yield (line[5:].strip() for line in response.iter_lines() if line.startswith("data:"))

    def metrics(self) -> dict[str, float]:
        """Return every sample of /metrics, by name and labels other than the model's."""
        samples: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                labels = sorted(item for item in sample.labels.items() if item[0] != "model" and item[1])
                samples[sample.name + "".join(f"{{{name}={value}}}" for name, value in labels)] = sample.value
        return samples

    def is_idle(self) -> bool:
        """Return whether the engine holds nothing: no request, no block."""
        now = self.metrics()
        names = ("requests_running", "requests_waiting", "tokens_waiting", "kv_cache_usage_ratio")
        return not any(now[f"headway_{name}"] for name in names)


def _body(prompt: str, fields: Mapping[str, object]) -> dict[str, object]:
    return {"prompt": prompt, "temperature": 0, "ignore_eos": True, **fields}


def text_of(events: Sequence[str]) -> str:
    """Return the text of a completion's events."""
    return "".join(choice["text"] for event in map(parse, events) for choice in event.get("choices", ()))


def parse(event: str) -> dict[str, Any]:
    """Return an event's JSON; nothing for `[DONE]`."""
    return {} if event == "[DONE]" else json.loads(event)


@contextmanager
def real_server(
    model: Path, folder: Path, *arguments: str, command: Sequence[str] = COMMAND
) -> Iterator[RealServer]:
    """Run `headway serve model`; its log goes to a file in `folder`. Leaving ends it, if it has not ended."""
    stderr_path = folder / "stderr.txt"
    with stderr_path.open("wb") as stderr:
        process = subprocess.Popen(
            (*command, "serve", str(model), *SMALL, *arguments), stdout=subprocess.PIPE, stderr=stderr
        )
    try:
        try:
            stdout = read_until(process, b"Stop with Ctrl-C.\n")
        except AssertionError as error:
            raise AssertionError(f"{error}; it logged: {stderr_path.read_text()}") from None
        yield RealServer(process, stdout, stderr_path)
    finally:
        end(process)


def read_until(process: "subprocess.Popen[bytes]", mark: bytes) -> str:
    """Read the process's stdout until `mark` has come; fails if it ends or takes too long."""
    assert process.stdout is not None
    end_s = time.monotonic() + LIMIT_S
    text = b""
    while mark not in text:
        assert select.select([process.stdout], [], [], max(0.0, end_s - time.monotonic()))[0], (
            f"waited for {mark!r}, got {text!r}"
        )
        piece = os.read(process.stdout.fileno(), 65536)
        assert piece, f"stdout ended with {text!r}, without {mark!r}"
        text += piece
    return text.decode()


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process kindly, then unkindly."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
