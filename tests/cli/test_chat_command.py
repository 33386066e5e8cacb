"""`headway chat`: one prompt, somebody else's server, and a person at a terminal."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.real_server import (
    COMMAND,
    LIMIT_S,
    RealServer,
    end,
    engine_of,
    eventually,
    headway,
    is_alive,
    is_settled,
    wait_for_engine,
)

pytestmark = pytest.mark.native

GREEDY = ("--temperature", "0", "--isa", "portable", "--threads", "1", "--kv-memory", "16M")
"""On one instruction set the tiny model's greedy answer is known: long, on every machine."""
IN_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Make the terminal on stdin ours, so that its Ctrl-C reaches us, then become the command."""


@pytest.mark.parametrize("prompt", ["hello", "-"])
def test_a_prompt_is_answered(tiny_model: Path, prompt: str) -> None:
    done = headway("chat", str(tiny_model), "--prompt", prompt, "--max-tokens", "8", *GREEDY, stdin="hello")
    assert (done.status, done.stderr) == (0, "")
    assert len(done.stdout) > 1
    assert done.stdout.endswith("\n")


def test_a_folder_for_sockets_that_cannot_hold_one_is_named(tiny_model: Path, tmp_path: Path) -> None:
    far = tmp_path / ("x" * 120)  # a socket's path has at most 107 bytes
    far.mkdir()
    done = headway("chat", str(tiny_model), "--prompt", "x", *GREEDY, env={"TMPDIR": str(far)})
    assert (done.status, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "TMPDIR" in done.stderr


def test_a_full_disk_behind_stdout_is_one_line(tiny_model: Path) -> None:
    for command in (("models",), ("chat", str(tiny_model), "--prompt", "x", "--max-tokens", "2", *GREEDY)):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                (*COMMAND, *command), stdout=full, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False
            )
        assert done.returncode == 2
        assert done.stderr == b"headway: Nothing more can be written (No space left on device): make room.\n"


def test_the_prompt_and_the_system_message_reach_the_model(shared_server: RealServer) -> None:
    def ask(*arguments: str, stdin: str = "") -> str:
        common = ("--url", shared_server.url, "--max-tokens", "16", "--temperature", "0")
        return headway("chat", *common, *arguments, stdin=stdin).stdout

    answer = ask("--prompt", "hello")
    assert ask("--prompt", "-", stdin="hello") == answer
    assert ask("--prompt", "world") != answer
    assert ask("--prompt", "hello", "--system", "def") != answer


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_any_form_of_a_servers_address_works(shared_server: RealServer, suffix: str) -> None:
    done = headway("chat", "--url", shared_server.url + suffix, "--prompt", "hello", "--max-tokens", "2")
    assert (done.status, done.stderr) == (0, "")


def test_a_server_that_is_not_there_is_one_line() -> None:
    done = headway("chat", "--url", "http://127.0.0.1:1", "--prompt", "hello")
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.startswith("headway: The server at http://127.0.0.1:1")
    assert done.stderr.count("\n") == 1


def test_an_address_that_is_none_is_one_line() -> None:
    done = headway("chat", "--url", "localhost:8000", "--prompt", "hello")
    assert done.status == 2
    assert done.stderr.count("\n") == 1
    assert "http://" in done.stderr


def test_what_the_server_refuses_is_one_line(shared_server: RealServer) -> None:
    done = headway("chat", "other", "--url", shared_server.url, "--prompt", "hello")
    assert done.status == 2
    assert "The model `other` is not served here" in done.stderr
    assert done.stderr.count("\n") == 1


class Terminal:
    """`headway chat` in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._screen, theirs = os.openpty()
        try:
            self.process = subprocess.Popen(
                (sys.executable, "-c", IN_TERMINAL, *COMMAND, "chat", *arguments),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        self._seen = b""

    def wait_for(self, mark: str) -> None:
        """Wait until `mark`, or anything, appears on the screen behind what was waited for before."""
        end_s = time.monotonic() + LIMIT_S
        while not self._seen or mark.encode() not in self._seen:
            assert select.select([self._screen], [], [], max(0.0, end_s - time.monotonic()))[0], (
                f"waited for {mark!r}, got {self._seen!r}"
            )
            self._seen += os.read(self._screen, 65536)
        self._seen = self._seen[self._seen.index(mark.encode()) + len(mark.encode()) :]

    def wait_for_prompt(self) -> None:
        """Wait until the command waits for a line: readline misses a signal that comes just before it sleeps."""
        self.wait_for("> ")
        assert eventually(lambda: is_settled(self.process.pid))

    def press(self, keys: str) -> None:
        """Type `keys`."""
        os.write(self._screen, keys.encode())

    def wait(self) -> int:
        """Wait for the command's end, reading on, so that it can write; return its exit code."""
        end_s = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end_s, self._seen
            if select.select([self._screen], [], [], 0.01)[0]:
                try:
                    self._seen += os.read(self._screen, 65536)
                except OSError:  # EIO: nobody has the terminal open any more
                    return self.process.wait(LIMIT_S)
        return self.process.returncode

    def close(self) -> None:
        """End whatever still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._screen)


@pytest.fixture
def terminal(tiny_model: Path) -> Iterator[Terminal]:
    terminal = Terminal(str(tiny_model), "--max-tokens", "20000", *GREEDY)
    yield terminal
    terminal.close()


CTRL_C, CTRL_D = "\x03", "\x04"


def test_a_person_asks_stops_the_answer_and_leaves(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    engine_pid = wait_for_engine(terminal.process.pid)
    for _ in range(2):
        terminal.press("hello\n")
        terminal.wait_for("hello\r\n")
        terminal.wait_for("")  # the answer has begun
        terminal.press(CTRL_C)
        terminal.wait_for(" [stopped]\r\n")
        terminal.wait_for_prompt()
        assert is_alive(engine_pid)
    terminal.press(CTRL_D)
    assert terminal.wait() == 0
    assert not is_alive(engine_pid)


def test_ctrl_c_at_the_prompt_leaves(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    engine_pid = wait_for_engine(terminal.process.pid)
    terminal.press(CTRL_C)
    assert terminal.wait() == 0
    assert not is_alive(engine_pid)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_signal_during_start_up_leaves_nothing_behind(
    tiny_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        (*COMMAND, "chat", str(tiny_model), *GREEDY),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        engine_pid = wait_for_engine(process.pid)
        os.kill(engine_pid, signal.SIGSTOP)  # it loads for ever
        process.send_signal(number)
        output = process.communicate(timeout=LIMIT_S)[0]
    finally:
        end(process)
    assert (process.returncode, output) == (128 + number, b"")
    assert not is_alive(engine_pid)
    assert list(tmp_path.iterdir()) == []


def test_sigterm_in_a_conversation_leaves_nothing_behind(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    engine_pid = wait_for_engine(terminal.process.pid)
    terminal.process.terminate()
    assert terminal.wait() == 128 + signal.SIGTERM
    assert eventually(lambda: not is_alive(engine_pid))
    assert engine_of(terminal.process.pid) is None


@pytest.mark.model
def test_the_demo_model_writes_code() -> None:
    ask = (
        "--prompt",
        "Write a Python function that adds two numbers.",
        "--temperature",
        "0",
        "--max-tokens",
        "16",
    )
    done = headway("chat", *ask)
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.startswith("```python\ndef ")


def test_ctrl_c_ends_an_answer_to_a_prompt(tiny_model: Path) -> None:
    process = subprocess.Popen(
        (*COMMAND, "chat", str(tiny_model), "--prompt", "hello", "--max-tokens", "20000", *GREEDY),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        engine_pid = wait_for_engine(process.pid)
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LIMIT_S)
    finally:
        end(process)
    assert (process.returncode, stderr) == (130, b"")
    assert not is_alive(engine_pid)


def test_an_api_key_comes_from_the_environment(shared_server: RealServer) -> None:
    ask = (
        "--url",
        shared_server.url,
        "--api-key-env",
        "CLI_TEST_KEY",
        "--prompt",
        "hello",
        "--max-tokens",
        "1",
    )
    assert headway("chat", *ask, env={"CLI_TEST_KEY": "secret"}).status == 0
    done = headway("chat", *ask)
    assert (done.status, done.stderr) == (2, "headway: The environment variable CLI_TEST_KEY is not set.\n")
