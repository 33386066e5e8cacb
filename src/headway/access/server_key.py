"""The server's key, under which tokens are kept: 32 random bytes in a file that only its owner reads.

Whoever has the store of tokens and not this key can check no guess. A new key makes all tokens unknown.
"""

import contextlib
import hashlib
import hmac
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from headway.access.api_token import RandomBytes
from headway.core.errors import ConfigError

KEY_BYTES: Final = 32
_NOT_FOR_OTHERS: Final = 0o027
"""A group may read it, as the ways in which secrets are handed to containers have it."""


def read_or_make_key(path: Path, random_bytes: RandomBytes) -> bytes:
    """Return the key in a file, made if there is none; raises ConfigError for what is no key, or for all to read."""
    try:
        if not path.exists():
            _make(path, random_bytes)
        return read_key(path)
    except OSError as error:
        raise ConfigError(f"The server's key {path} cannot be made: {error.strerror or error}.") from error


def has_key(path: Path) -> bool:
    """Whether there is a file at a key's place, be it one or not."""
    with contextlib.suppress(OSError):  # such as of a name that is too long
        return path.exists()
    return False


def read_key(path: Path) -> bytes:
    """Return the key in a file; raises ConfigError."""
    key = read_private(path, "The server's key")
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} is no key of a server: it has {len(key)} bytes instead of {KEY_BYTES}.")
    return key


def read_private(path: Path, what: str, max_bytes: int = 65_536) -> bytes:
    """Return what a file holds that others may not read; raises ConfigError."""
    try:
        with open_now(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(mode) or len(data) > max_bytes:
        raise ConfigError(f"{what} {path} is no small file.")
    if mode & _NOT_FOR_OTHERS:
        raise ConfigError(f"{what} {path} is not for its owner alone: run `chmod 600` on it.")
    return data


def open_now(path: Path) -> BinaryIO:
    """Open a file to be read, without waiting: of a pipe for whoever may write it, which would be for ever."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def key_check(key: bytes) -> bytes:
    """Return what a store remembers of the key its tokens are kept under, to tell another one."""
    return hmac.digest(key, b"headway: key of a token store", hashlib.sha256)[:16]


def _make(path: Path, random_bytes: RandomBytes) -> None:
    """Write a new key whole, or leave the one that somebody else made meanwhile."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(random_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        os.unlink(beside)
