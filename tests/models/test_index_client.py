import base64
import hashlib
import importlib.util
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headway.core.errors import FetchError
from headway.models.index_client import pip_download, run_command
from headway.models.progress import Progress

REQUIREMENT = "llm-tiny==1.0"
WHEEL_NAME = "llm_tiny-1.0-py3-none-any.whl"


class Notes:
    """A progress that remembers."""

    interactive = False

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)

    def advance(self, what: str, num_done: int, num_total: int) -> None:
        raise NotImplementedError


class FakePip:
    """Stands in for the pip process: leaves `files` in the destination, says `lines`, ends with `status`."""

    def __init__(
        self, status: int = 0, lines: Sequence[str] = (), files: Sequence[str] = (WHEEL_NAME,)
    ) -> None:
        self._outcome = status, lines
        self._files = files
        self.command: Sequence[str] = ()
        self.environ: Mapping[str, str] = {}

    def __call__(
        self, command: Sequence[str], environ: Mapping[str, str], progress: Progress
    ) -> tuple[int, Sequence[str]]:
        assert not progress.interactive
        self.command, self.environ = command, environ
        folder = next(Path(word.removeprefix("--dest=")) for word in command if word.startswith("--dest="))
        for name in self._files:
            (folder / name).touch()
        return self._outcome


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "wheel"
    inner.mkdir()
    return inner


def test_the_wheel_alone_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    pip = FakePip()
    assert pip_download(REQUIREMENT, folder, Notes(), run=pip) == folder / WHEEL_NAME
    assert list(pip.command[:4]) == [sys.executable, "-P", "-m", "pip"]
    assert {"download", "--no-deps", "--only-binary=:all:", "--no-input", REQUIREMENT} <= set(pip.command)
    assert pip.environ["PIP_INDEX_URL"] == "https://index.example/simple"  # the user's settings stay
    assert pip.environ["TMPDIR"] == str(folder.parent)


@pytest.mark.parametrize(
    ("pip", "reason"),
    [
        (
            FakePip(1, ["WARNING: x", "ERROR: first", "ERROR: No matching distribution.", "note"]),
            r"\(No matching distr",
        ),
        (FakePip(2, ["usage", "no such option", ""]), r"\(no such option\)"),
        (FakePip(-9), r"\(exit status -9\)"),
        (FakePip(files=()), "left 0 wheels"),
        (FakePip(files=(WHEEL_NAME, "other-1-py3-none-any.whl")), "left 2 wheels"),
    ],
)
def test_a_failure_is_one_line_that_says_what_to_do(folder: Path, pip: FakePip, reason: str) -> None:
    with pytest.raises(FetchError, match=reason) as caught:
        pip_download(REQUIREMENT, folder, Notes(), run=pip)
    assert "\n" not in caught.value.message
    assert "give the path of the .gguf file" in caught.value.message


def test_a_pip_that_cannot_be_started_is_told(folder: Path) -> None:
    def absent(*_: object) -> tuple[int, Sequence[str]]:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(FetchError, match=r"could not be started \(No such file or directory\)"):
        pip_download(REQUIREMENT, folder, Notes(), run=absent)


def test_without_a_pip_of_its_own_another_one_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/pip" if name == "pip" else None)
    pip = FakePip()
    pip_download(REQUIREMENT, folder, Notes(), run=pip)
    assert pip.command[0] == "/usr/bin/pip"


def test_without_any_pip_the_error_names_the_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(FetchError, match="-m ensurepip"):
        pip_download(REQUIREMENT, folder, Notes(), run=FakePip())


def test_a_command_ends_with_its_status_and_last_lines() -> None:
    script = "import sys; print('out'); sys.stderr.write('WARNING: Retrying (1)\\nERROR: x\\n'); sys.exit(3)"
    progress = Notes()
    status, lines = run_command([sys.executable, "-S", "-c", script], {}, progress)
    assert (status, list(lines)) == (3, ["WARNING: Retrying (1)", "ERROR: x"])
    assert progress.lines == ["WARNING: Retrying (1)"]


def test_an_interrupt_ends_the_command() -> None:
    class Interrupting(Notes):
        def note(self, line: str) -> None:
            raise KeyboardInterrupt(line)

    script = (
        "import sys, signal; sys.stderr.write('WARNING: Retrying\\n'); sys.stderr.flush(); signal.pause()"
    )
    with pytest.raises(KeyboardInterrupt):  # and not a test that hangs: the paused child was ended
        run_command([sys.executable, "-S", "-c", script], {}, Interrupting())


def test_the_real_pip_takes_the_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(tmp_path / WHEEL_NAME)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel = pip_download(REQUIREMENT, folder, Notes())
    assert wheel.read_bytes() == (tmp_path / WHEEL_NAME).read_bytes()


def write_wheel(path: Path) -> None:
    """Write the smallest wheel pip takes; it requires a package that does not exist, to be left out."""
    files = {
        "llm_tiny-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: llm-tiny\nVersion: 1.0\n"
        b"Requires-Dist: headway-no-such-package\n",
        "llm_tiny-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "llm_tiny-1.0.dist-info/RECORD"
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(record, "\n".join([*lines, f"{record},,"]))


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
