"""Files that a measurement leaves: known to be writable before anything is measured, and whole or not there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from headway.core.errors import ConfigError


def check_writable(path: Path) -> None:
    """Raise ConfigError where a file could not be written, by writing an empty one beside it."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is no regular file, so it cannot be replaced by one.")
        part = _part(path)
        part.touch(exist_ok=False)
        part.unlink()
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have a file written under another name and then renamed, so that nobody ever reads half of it; raises ConfigError."""
    part = _part(path)
    try:
        with part.open("xb") as file:
            write(file)
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} could not be written: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")
