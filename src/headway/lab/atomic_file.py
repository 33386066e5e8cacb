"""Writing a whole file or none: what is at a path is the old file until the new one is complete. It knows no formats."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from headway.core.errors import ConfigError


def check_writable(path: Path, what: str) -> None:
    """Find out, before the work, whether `what` can be written to `path` after it; raises ConfigError if not."""
    with _errors(path, what):
        if path.exists() and not path.is_file():
            raise ConfigError(f"{what} cannot be written to {path}: it is there and is no file.")
        beside = _beside(path)
        beside.touch(exist_ok=False)
        beside.unlink()


def write_whole(path: Path, text: str, what: str) -> None:
    """Write `text` in UTF-8, and only then put it in the place of what was at `path`; raises ConfigError."""
    # What is no character (half a surrogate pair in a server's message) must not cost the rest.
    data = text.encode("utf-8", "backslashreplace")
    write_whole_by(path, lambda file: file.write(data), what)


def write_whole_by(path: Path, write: Callable[[BinaryIO], object], what: str) -> None:
    """The same of a file that `write` writes."""
    with _errors(path, what):
        beside = _beside(path)
        try:
            with beside.open("xb") as file:
                write(file)
            os.replace(beside, path.resolve())  # through a link, not over it
        finally:
            beside.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A name of our own in the folder where the file will lie, as only within one file system a rename is atomic."""
    return path.resolve().parent / f".headway-{secrets.token_hex(8)}"


@contextmanager
def _errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what} cannot be written to {path}: {error.strerror or error}.") from error
