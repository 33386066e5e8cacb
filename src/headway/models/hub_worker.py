"""The process that fetches from a hub: `python -m headway.models.hub_worker NAME`, started by `hub_fetch` alone.

In a process of its own, because huggingface_hub downloads on threads that only a process's end stops at once, and so that
nothing it imports or sets stays with a server. It and `hub_errors` alone know the library. Standard output carries one
`Report` a line; when standard input ends, whoever started this process is gone, and so is it.
"""

import hashlib
import logging
import os
import resource
import shutil
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache
from huggingface_hub.utils.tqdm import tqdm

from headway.core.errors import FetchError
from headway.core.version import __version__
from headway.models.hub_errors import fetch_error, is_unreachable
from headway.models.hub_fetch import Report
from headway.models.hub_name import HubName, choose_files, parse_hub_name
from headway.models.progress import megabytes

_API_TIMEOUT_S = 15.0
"""A hub answers such questions in a second; a network that swallows packets would let us wait for minutes."""

_SAFETY_BYTES = 64 * 1024 * 1024
"""Left free on the disk: listings, locks, links, and whatever else writes meanwhile."""

_MOST_OPENED_MEANWHILE = 256
"""Far more than the library's few threads open between two lines."""

_CHUNK_BYTES = 16 * 1024 * 1024  # a hundredth of a second of hashing


def main(argv: Sequence[str]) -> int:
    """Fetch the model named by the only argument; the exit status is 0 unless the process is stopped."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    _relay_warnings()
    name = parse_hub_name(argv[0])
    assert name is not None
    try:
        _tell(Report(path=str(_fetch(name))))
    except FetchError as error:
        _tell(Report(error=error.message))
    except Exception as error:
        _tell(
            Report(
                error=fetch_error(name, error, constants.ENDPOINT).message, unreachable=is_unreachable(error)
            )
        )
    return 0


def _fetch(name: HubName) -> Path:
    """Return the folder or GGUF file, its files whole and those with a known digest checked."""
    api = HfApi(library_name="headway", library_version=__version__)
    info = api.model_info(
        name.repository, revision=name.revision, files_metadata=True, timeout=_API_TIMEOUT_S
    )
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    chosen = choose_files(name, siblings)
    assert info.sha is not None
    absent = {file for file in chosen.files if not _is_cached(name, info.sha, file)}
    num_bytes = sum(siblings[file].size or 0 for file in absent)
    if absent:
        _require_space(name, num_bytes)
        _tell(
            Report(
                note=f"Fetching {name} ({len(absent)} file{'s' * (len(absent) > 1)}, {megabytes(num_bytes)}) "
                f"from {constants.ENDPOINT}"
            )
        )
    snapshot = Path(
        snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=[_literally(file) for file in chosen.files],
            tqdm_class=_bar(num_bytes),
            library_name="headway",
            library_version=__version__,
        )
    )
    if absent:
        # Two files may have the same content, which comes once.
        _tell(Report(done=num_bytes, total=num_bytes))
    digests = {
        snapshot / file: lfs.sha256 for file in sorted(absent) if (lfs := siblings[file].lfs) is not None
    }
    _check(digests)
    path = snapshot / chosen.main if chosen.main else snapshot
    if absent:
        _tell(Report(note=f"{name} is ready: {path}"))
    return path


def _is_cached(name: HubName, commit: str, file: str) -> bool:
    return isinstance(try_to_load_from_cache(name.repository, file, revision=commit), str)


def _require_space(name: HubName, num_bytes: int) -> None:
    folder = Path(constants.HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        raise FetchError(
            f"{name} could not be stored under {folder}, which is not writable: make it writable, or set HF_HOME to another "
            "folder."
        )
    needed, usage = num_bytes + _SAFETY_BYTES, shutil.disk_usage(folder)
    if usage.free < needed and usage.total > 0:  # some file systems do not know
        raise FetchError(
            f"{name} needs {megabytes(needed)} under {folder}, but {megabytes(usage.free)} are free: free some space, or "
            "set HF_HOME to another folder."
        )


def _check(digests: Mapping[Path, str]) -> None:
    """Compare fetched files with the hub's SHA-256; a wrong one is removed, so that it is fetched again."""
    num_total, num_done = sum(path.stat().st_size for path in digests), 0
    for path, expected in digests.items():
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                num_done += len(chunk)
                _tell(Report(what="Checking", done=num_done, total=num_total))
        if digest.hexdigest() != expected:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise FetchError(f"{path.name} was damaged on its way (its SHA-256 is wrong): fetch it again.")


def _literally(file: str) -> str:
    """Return a pattern that only `file` matches (fnmatch)."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in file)


def _bar(num_total: int) -> type[tqdm]:
    """Return a bar class that draws nothing and tells how many of `num_total` bytes have been written."""
    lock = threading.Lock()
    num_done = 0

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._counts = str(kwargs.get("desc", "")).startswith("Reconstructing")
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            nonlocal num_done
            if self._counts:
                with lock:
                    num_done += int(n or 0)
                    _tell(Report(done=min(num_done, num_total), total=num_total))

    return Bar


def _relay_warnings() -> None:
    """Tell of interrupted transfers that are taken up again; the library's advice about itself is for programmers."""

    class Relay(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if str(record.msg).startswith("Error while downloading"):
                _tell(Report(note="The transfer was interrupted; it goes on where it stopped."))

    logger = logging.getLogger("huggingface_hub")
    logger.handlers = [Relay()]
    logger.propagate = False


def _tell(report: Report) -> None:
    """Write one line, at once: os.write of less than a pipe's 4096 bytes is never mixed with another thread's."""
    os.write(1, msgspec.json.encode(report) + b"\n")


def _stop(number: int, _frame: FrameType | None) -> None:
    _leave(128 + number)


def _stop_with_parent() -> None:
    while os.read(0, 4096):
        pass
    _leave(128 + signal.SIGTERM)


def _leave(status: int) -> None:
    """End at once, without the half-made files: the library would wait for its threads, however long they take."""
    # The library's threads go on meanwhile. Without a descriptor to be had, none of them begins another file.
    bound = max(map(int, os.listdir("/proc/self/fd"))) + _MOST_OPENED_MEANWHILE
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for descriptor in range(bound):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if target.endswith(".incomplete"):
                os.unlink(target)
        except OSError:
            continue
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
