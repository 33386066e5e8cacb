"""Fetching from a hub: the real client library, in its own process, against a hub on a loopback port."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.core.errors import FetchError
from headway.models.fetch import resolve_model
from headway.models.hub_fetch import Report, fetch_hub_model
from headway.models.hub_name import HubName
from headway.models.progress import Progress
from support.hub_server import Hub, HubModel, hub_server
from support.real_server import COMMAND, LIMIT_S, eventually

WEIGHTS = bytes(range(256)) * 1000
FOLDER = {"config.json": b'{"a": 1}', "model.safetensors": WEIGHTS, "tokenizer.json": b"{}"}
UNWANTED = {"pytorch_model.bin": b"code", "modeling.py": b"code", "README.md": b"text"}


class Notes:
    """A progress that remembers."""

    interactive = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[tuple[int, int]] = []
        self.checks: list[tuple[int, int]] = []

    def note(self, line: str) -> None:
        self.lines.append(line)

    def advance(self, what: str, num_done: int, num_total: int) -> None:
        if what == "Fetching":
            self.steps.append((num_done, num_total))
        else:
            assert what == "Checking"
            self.checks.append((num_done, num_total))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty HF_HOME and none of the caller's settings."""
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGINGFACE_", "HUGGING_FACE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "home"


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, where the client looks for it; it fetches into `home`."""
    assert not home.exists()
    with hub_server({"owner/name": HubModel({**FOLDER, **UNWANTED})}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def half_made(home: Path) -> list[str]:
    return [path.name for path in home.rglob("*.incomplete")]


def no_work(name: HubName, _progress: Progress) -> Report:
    raise AssertionError(f"the hub was asked for {name}")


def test_a_folder_is_fetched_once_without_code(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Notes()
    path = resolve_model("owner/name", progress)
    assert contents(path) == FOLDER
    assert path.parent.name == "snapshots"
    assert set(hub.downloads()) == {"config.json", "tokenizer.json"}  # the weights lie behind a redirect
    assert not any(name in line for line in hub.requests for name in UNWANTED)
    assert progress.lines == [
        f"Fetching owner/name (3 files, 0.3 MB) from {hub.url}",
        f"owner/name is ready: {path}",
    ]
    total = sum(map(len, FOLDER.values()))
    assert progress.steps[-1] == (total, total)
    assert progress.checks == [(len(WEIGHTS), len(WEIGHTS))]
    assert [done for done, _ in progress.steps] == sorted(done for done, _ in progress.steps)

    num_requests, silent = len(hub.requests), Notes()
    assert resolve_model("owner/name", silent) == path
    name = HubName(repository="owner/name", revision=path.name)
    assert fetch_hub_model(name, silent, update=False, work=no_work) == path
    assert (len(hub.requests), silent.lines) == (num_requests, [])

    hub.models["owner/name"].files["config.json"] = b'{"a": 2}'
    assert contents(resolve_model("owner/name", silent)) == FOLDER  # still what was fetched
    newer = resolve_model("owner/name", silent, update=True)
    assert contents(newer) == {**FOLDER, "config.json": b'{"a": 2}'}
    assert sum(line.startswith("GET") and "/cdn/" in line for line in hub.requests) == 1

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = Notes()
    assert resolve_model("owner/name", offline, update=True) == newer
    assert offline.lines == ["The hub cannot be asked; owner/name is used as it is in the cache."]


def test_one_gguf_of_several_is_fetched_with_its_shards(hub: Hub) -> None:
    shards = {f"m-Q8_0-0000{number}-of-00002.gguf": bytes([number]) * 100 for number in (1, 2)}
    hub.models["owner/gguf"] = HubModel({**shards, "m-Q4_0.gguf": b"4" * 50, "README.md": b""})
    path = resolve_model("owner/gguf:Q8_0", Notes())
    assert path.name == "m-Q8_0-00001-of-00002.gguf"
    assert contents(path.parent) == shards


def test_a_token_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.models["owner/name"].token = "secret"
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert contents(resolve_model("owner/name", Notes())) == FOLDER


@pytest.mark.parametrize(
    ("name", "fault", "message"),
    [
        ("owner/nope", {}, "There is no model owner/nope on .*check the name"),
        ("owner/name@v2", {}, "has no revision 'v2'"),
        ("owner/name", {"gated": True}, "owner/name is gated: ask for access at http"),
        ("owner/name", {"token": "secret"}, r"refuses to give owner/name \(status 401\): check HF_TOKEN"),
        ("owner/name", {"status": 503}, "answered with status 503: try again later"),
        ("owner/name", {"corrupt": True}, r"model.safetensors was damaged on its way .*fetch it again"),
        (
            "owner/name",
            {"claimed_size": 10**16},
            r"needs 10,000,000,0[0-9]+ MB under .* are free: free some space",
        ),
        ("owner/name:Q4_0", {}, "nor a whole GGUF file"),
        ("owner--name/x", {}, "'owner--name/x' is no name of a model"),
    ],
)
def test_what_a_hub_refuses_is_one_line(hub: Hub, name: str, fault: dict[str, object], message: str) -> None:
    for field, value in fault.items():
        setattr(hub.models["owner/name"], field, value)
    with pytest.raises(FetchError, match=message) as caught:
        resolve_model(name, Notes())
    assert "\n" not in caught.value.message


def test_a_damaged_file_is_fetched_again(hub: Hub) -> None:
    hub.models["owner/name"].corrupt = True
    with pytest.raises(FetchError, match="damaged"):
        resolve_model("owner/name", Notes())
    hub.models["owner/name"].corrupt = False
    assert contents(resolve_model("owner/name", Notes())) == FOLDER


def test_a_transfer_that_breaks_off_goes_on_where_it_stopped(hub: Hub) -> None:
    model = hub.models["owner/name"]
    model.cut_after, model.num_cuts = 100_000, 1
    progress = Notes()
    assert contents(resolve_model("owner/name", progress)) == FOLDER
    assert "The transfer was interrupted; it goes on where it stopped." in progress.lines


def test_without_a_network_it_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # discard: nothing listens
    with pytest.raises(FetchError, match=r"http://127.0.0.1:9 cannot be reached .*HF_ENDPOINT"):
        resolve_model("owner/name", Notes())
    assert half_made(home) == []


def test_offline_without_the_model_it_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FetchError, match=r"not in the cache, .*unset HF_HUB_OFFLINE"):
        resolve_model("owner/name", Notes())
    assert half_made(home) == []


def test_a_cache_that_cannot_be_written_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "/proc/nowhere")  # not writable even for root
    with pytest.raises(FetchError, match=r"could not be stored .*/proc/nowhere.*HF_HOME"):
        resolve_model("owner/name", Notes())
    assert hub.downloads() == []


def test_a_disk_that_fills_up_leaves_nothing_half_made(hub: Hub, home: Path) -> None:
    """The kernel refuses to let any file grow beyond 64 KiB, at the moment when a full disk would refuse it."""
    done = subprocess.run(
        ["/bin/bash", "-c", 'ulimit -f 64; exec "$@"', "bash", *COMMAND, "pull", "owner/name"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "headway: owner/name could not be stored (File too large): free some space, or set HF_HOME to another folder."
    )
    assert "Traceback" not in done.stderr
    assert half_made(home) == []
    assert contents(resolve_model("owner/name", Notes())) == FOLDER
    assert hub.requests


def start_pull() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (*COMMAND, "pull", "owner/name"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_a_fetch_leaves_nothing_half_made(hub: Hub, home: Path, number: signal.Signals) -> None:
    model = hub.models["owner/name"]
    model.hold_after = 100_000
    with start_pull() as process:
        assert model.holding.wait(LIMIT_S)
        assert eventually(lambda: len(list(home.glob("hub/*/snapshots/*/*.json"))) == 2)
        assert len(half_made(home)) == 1
        process.send_signal(number)
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in stderr
    assert eventually(lambda: half_made(home) == [])  # after SIGKILL the worker notices by itself
    model.hold_after = None
    model.released.set()
    hub.requests.clear()
    assert contents(resolve_model("owner/name", Notes())) == FOLDER
    assert hub.downloads() == []  # the small files were whole


@pytest.mark.parametrize("moment", ["/revision/", "/tree/", "/resolve/", "/cdn/"])
def test_a_fetch_killed_at_any_moment_does_no_harm(hub: Hub, home: Path, moment: str) -> None:
    model = hub.models["owner/name"]
    model.hold_at = moment
    with start_pull() as process:
        assert model.holding.wait(LIMIT_S)
        process.kill()
    assert eventually(lambda: half_made(home) == [])
    model.hold_at = None
    model.released.set()
    assert contents(resolve_model("owner/name", Notes())) == FOLDER


def test_a_worker_that_dies_is_told_and_the_next_fetch_works(hub: Hub) -> None:
    model = hub.models["owner/name"]
    model.hold_after = 100_000
    with start_pull() as process:
        assert model.holding.wait(LIMIT_S)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert stderr.splitlines()[-1].endswith("ended unexpectedly (status -9).")
    model.hold_after = None
    model.released.set()
    assert contents(resolve_model("owner/name", Notes())) == FOLDER


def test_of_two_fetches_at_once_one_downloads(hub: Hub) -> None:
    model = hub.models["owner/name"]
    model.hold_after = 100_000
    with start_pull() as first, start_pull() as second:
        assert model.holding.wait(LIMIT_S)
        assert eventually(lambda: sum("GET /owner/name/cdn" in line for line in hub.requests) >= 1)
        assert eventually(lambda: sum("HEAD /owner/name/cdn" in line for line in hub.requests) == 2)
        model.released.set()
        paths = {process.communicate(timeout=LIMIT_S)[0].strip() for process in (first, second)}
    assert (first.returncode, second.returncode) == (0, 0)
    (path,) = paths
    assert contents(Path(path)) == FOLDER
    assert sum(line.startswith("GET /owner/name/cdn") for line in hub.requests) == 1


def test_the_command_line_never_imports_the_clients_library() -> None:
    code = (
        "import sys; sys.argv = ['headway', 'pull', 'nope']\n"
        "from headway.cli.main import main; assert main() == 2\n"
        "print([name for name in ('huggingface_hub', 'httpx2', 'tqdm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
