"""Keeps two runs from measuring, or writing, at once."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Held(Exception):
    """Another run has the lock."""


@contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Hold the lock of a cache folder, which is made; raises Held. It ends with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(f"another run is in progress ({path} is locked)") from None
        yield
