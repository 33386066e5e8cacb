"""Fetches a model from a Hugging Face hub, or finds it in the hub's cache.

The work is done by `hub_worker` in a process of its own; this is the side that starts it, shows its progress and ends it.
Where the cache is, which hub is asked and with which token is the client library's to know (HF_HOME, HF_ENDPOINT,
HF_TOKEN, HF_HUB_OFFLINE). Files are whole or not there: the library renames them into place, and its locks and unique
temporary names keep two fetches apart.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from headway.core.errors import FetchError
from headway.models.hub_cache import cached_model, hub_cache_folder
from headway.models.hub_name import HubName
from headway.models.progress import Progress

_TERMINATE_TIMEOUT_S = 5.0


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line from the worker: a note, bytes done of `what`, or how it ended (`path` or `error`)."""

    note: str | None = None
    what: str = "Fetching"
    done: int | None = None
    total: int = 0
    path: str | None = None
    error: str | None = None
    unreachable: bool = False
    """With `error`: the hub could not be asked."""


Work = Callable[[HubName, Progress], Report]
"""Fetches; returns the last report, which has `path` or `error`. Raises OSError if no process can be started."""


def fetch_hub_model(name: HubName, progress: Progress, *, update: bool, work: Work | None = None) -> Path:
    """Return the folder or GGUF file of `name`: from the cache if all of it is there, else from the hub.

    update   ask the hub for a newer state of the revision first; the cache serves if it cannot be asked

    Raises FetchError, one line that says what to do.
    """
    cache = hub_cache_folder()
    if not update and (path := cached_model(name, cache)):
        return path
    try:
        report = (work or run_worker)(name, progress)
    except OSError as error:
        raise FetchError(
            f"{name} could not be fetched: no process can be started ({error.strerror})."
        ) from error
    if report.path is not None:
        return Path(report.path)
    if report.unreachable and (path := cached_model(name, cache, unlisted=True)):
        if update:
            progress.note(f"The hub cannot be asked; {name} is used as it is in the cache.")
        return path
    raise FetchError(report.error or f"{name} could not be fetched.")


def run_worker(name: HubName, progress: Progress) -> Report:
    """Run `hub_worker` to its end, passing on what it tells; it ends when we are interrupted."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headway.models.hub_worker", str(name)],
        env={**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1"},
        stdin=subprocess.PIPE,  # its end tells the worker that we are gone, however we went
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # all that the worker has to tell comes in reports
        start_new_session=True,  # a terminal's Ctrl-C reaches us, and through us the worker
    )
    last = Report()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                last = msgspec.json.decode(line, type=Report)
            except msgspec.DecodeError:  # printed by something inside the library
                continue
            if last.note is not None:
                progress.note(last.note)
            elif last.done is not None:
                progress.advance(last.what, last.done, last.total)
        if last.path is None and last.error is None:
            return Report(
                error=f"The process that fetched {name} ended unexpectedly (status {process.wait()})."
            )
        return last
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
