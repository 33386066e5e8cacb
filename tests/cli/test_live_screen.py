"""The live table on a terminal: it draws over itself, leaves nothing, and never harms the measurement."""

import asyncio
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from headway.cli.live_screen import LiveScreen, is_possible
from headway.lab.progress import LoadPlan, Progress, Snapshot
from headway.lab.sample import Sample
from support.screen import Screen

SAMPLE = Sample(
    failure=None,
    ended_ns=time.monotonic_ns(),
    lag_ns=10,
    ttft_ns=10**8,
    e2e_ns=2 * 10**8,
    itl_ns=10**7,
    num_intervals=9,
    output_tokens=10,
)
PLAN = LoadPlan(num_requests=5, duration_ns=None, num_running=lambda: 2)


def standing_still() -> Progress:
    """Return a run that began just now, whatever the time."""
    return Progress(lambda: SAMPLE.ended_ns)


class Terminal:
    """A pseudo-terminal: `file` is the program's side."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.file: TextIO = os.fdopen(slave, "w")
        self.screen = Screen()
        self.resize(24, 80)

    def resize(self, height: int, width: int) -> None:
        """Have the window changed."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self) -> Screen:
        """Show what was written so far."""
        os.set_blocking(self.master, False)
        while True:
            try:
                self.screen.feed(os.read(self.master, 1 << 16))
            except BlockingIOError:
                return self.screen


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    made = Terminal()
    yield made
    made.file.close()
    os.close(made.master)


def test_it_draws_over_itself(terminal: Terminal) -> None:
    screen = LiveScreen("light", terminal.file, standing_still())
    screen.draw()
    assert terminal.read().lines == ["light", "preparing", ""]
    screen.begin(PLAN)
    for number in range(3):
        screen.see(SAMPLE)
        screen.draw()
        lines = terminal.read().lines
        assert lines[1].startswith(f"{number + 1} of 5 requests")
        assert len(lines) == 11
    assert not terminal.screen.cursor_visible


@pytest.mark.anyio
async def test_it_leaves_nothing_behind(terminal: Terminal) -> None:
    with LiveScreen("light", terminal.file) as screen:
        screen.begin(PLAN)
        await asyncio.sleep(0)  # its task draws once
        assert terminal.read().lines[0] == "light"
        assert not terminal.screen.cursor_visible
    shown = terminal.read()
    assert set(shown.lines) == {""}
    assert (shown.row, shown.column, shown.cursor_visible) == (0, 0, True)
    assert screen.error is None


@pytest.mark.parametrize(
    ("height", "width", "num_lines"),
    [(24, 80, 10), (24, 40, 11), (6, 80, 5), (2, 80, 1), (1, 80, 1), (0, 0, 10)],
)
def test_it_fits_into_the_terminal_as_that_is_now(
    height: int, width: int, num_lines: int, terminal: Terminal
) -> None:
    screen = LiveScreen("light", terminal.file, standing_still())
    screen.begin(PLAN)
    screen.draw()
    terminal.resize(height, width)
    screen.draw()
    lines = [line for line in terminal.read().lines if line]
    assert len(lines) == num_lines
    assert max(map(len, lines)) <= (width or 80)


def test_colours_are_left_out_where_nobody_wants_them(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    colours = {str(number) for number in (*range(30, 39), *range(90, 98))}
    for no_color, is_coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        terminal.screen.styles.clear()
        screen = LiveScreen("light", terminal.file)
        screen.begin(PLAN)
        screen.see(SAMPLE)
        screen.draw()
        assert bool(terminal.read().styles & colours) is is_coloured


class Broken(Progress):
    """Fails where it is told to."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def add(self, sample: Sample) -> None:
        if self.where == "add":
            raise ZeroDivisionError
        super().add(sample)

    def snapshot(self) -> Snapshot:
        raise ZeroDivisionError


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["add", "snapshot"])
async def test_a_table_that_fails_ends_nothing_else(where: str, terminal: Terminal) -> None:
    with LiveScreen("light", terminal.file, Broken(where)) as screen:
        screen.begin(PLAN)
        for _ in range(3):
            screen.see(SAMPLE)
            await asyncio.sleep(0)
    assert isinstance(screen.error, ZeroDivisionError)
    assert terminal.read().cursor_visible


@pytest.mark.anyio
async def test_a_terminal_that_went_away_ends_nothing_else() -> None:
    terminal = Terminal()
    os.close(terminal.master)
    with LiveScreen("light", terminal.file) as screen:
        screen.begin(PLAN)
        await asyncio.sleep(0)
    assert isinstance(screen.error, OSError)
    with pytest.raises(OSError, match="Input/output error"):
        terminal.file.close()  # which has still something to write


@pytest.mark.anyio
async def test_a_terminal_that_takes_nothing_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filled = 0
    while True:
        try:
            filled += os.write(writing, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writing, True)  # a write would hang now
    with os.fdopen(writing, "w") as file, LiveScreen("light", file) as screen:
        screen.begin(PLAN)
        await asyncio.sleep(0)
        os.read(reading, filled)  # or the end could not be written
        assert screen.error is None
    told = os.read(reading, 1 << 20).decode().lstrip("x")
    assert "light" not in told
    os.close(reading)


@pytest.mark.parametrize(
    ("term", "possible"), [("xterm", True), ("dumb", False), ("DUMB", False), ("", False)]
)
def test_a_terminal_has_to_understand(
    term: str, possible: bool, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.file)
    assert is_possible({"TERM": term}) is possible
    assert not is_possible({})


def test_what_is_no_terminal_is_not_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not is_possible({"TERM": "xterm"})


@contextmanager
def null_server() -> Iterator[int]:
    command = [
        sys.executable,
        "-m",
        "headway.lab.null_server",
        "--ttft-ms",
        "5",
        "--itl-ms",
        "1",
        "--tokens",
        "4",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.stdin.close()


def bench(port: int, stderr: int, *more: str, term: str = "xterm") -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "headway.cli.main", "bench", f"http://127.0.0.1:{port}", "--model", "m"]
    return subprocess.Popen(
        [*command, "--json", *more],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=os.environ | {"TERM": term},
    )


def test_ctrl_c_leaves_a_clean_terminal_and_the_report() -> None:
    master, slave = pty.openpty()
    shown = Screen()
    with null_server() as port, bench(port, slave, "--requests", "1000000") as process:
        os.close(slave)
        while not any(re.match(r"[1-9][0-9,]* of 1,000,000 requests", line) for line in shown.lines):
            shown.feed(os.read(master, 1 << 16))
        assert not shown.cursor_visible
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        while rest := _rest(master):
            shown.feed(rest)
    os.close(master)
    assert process.returncode == 130
    assert json.loads(out)["interrupted"] is True
    assert set(shown.lines) == {""}
    assert (shown.row, shown.cursor_visible) == (0, True)


@pytest.mark.parametrize(("term", "more"), [("dumb", ()), ("xterm", ("--no-live",))])
def test_nothing_is_drawn_where_nothing_can_or_shall_be(term: str, more: tuple[str, ...]) -> None:
    master, slave = pty.openpty()
    with null_server() as port, bench(port, slave, "--requests", "3", *more, term=term) as process:
        os.close(slave)
        out, _ = process.communicate(timeout=60)
        assert _rest(master) == b""
    os.close(master)
    assert process.returncode == 0
    assert json.loads(out)["ok"] == 3


def _rest(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # Linux's end of file, once nobody has the other side open
        return b""


@pytest.mark.anyio
async def test_what_is_no_terminal_takes_the_table_as_well() -> None:
    """The self-test draws into nothing, so that the client is measured with what drawing costs it."""
    drawn = io.StringIO()

    class Nowhere(io.TextIOWrapper):
        def write(self, text: str) -> int:
            return drawn.write(text)

    with io.FileIO(os.devnull, "w") as nothing, Nowhere(nothing) as nowhere:
        with LiveScreen("nowhere", nowhere) as screen:
            screen.begin(PLAN)
            screen.see(SAMPLE)
            await asyncio.sleep(0)
            screen.draw()
        assert screen.error is None
    assert "nowhere" in drawn.getvalue()
