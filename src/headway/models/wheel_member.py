"""Takes one file out of a wheel, hashing it on the way. It trusts nothing in the archive: name and size are given."""

import errno
import hashlib
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from headway.core.errors import FetchError

_CHUNK_BYTES = 1 << 20
# What zipfile raises for damaged archives; RuntimeError: encrypted, or an unknown compression; ValueError: bad names.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error)


def extract_member(
    wheel: Path, member: str, target: Path, *, num_bytes: int, on_bytes: Callable[[int], None]
) -> str:
    """Write `member` of `wheel` to the new file `target`, flushed to disk, and return its SHA-256 digest.

    Only the exact name `member` is looked up and only `target` is written, so no name in the archive chooses a path.
    `on_bytes` is told the number of bytes written so far. Raises FetchError if the archive is damaged, lacks the
    member, or holds anything but exactly `num_bytes` bytes of it; OSError if `target` cannot be written.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(member)
            if info.file_size != num_bytes:
                raise FetchError(
                    f"{member} in {wheel.name} has {info.file_size} bytes instead of {num_bytes}."
                )
            return _copy(archive, info, target, on_bytes)
    except KeyError as error:
        raise FetchError(f"{wheel.name} does not contain {member}.") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # what a directory with offsets outside the archive ends in
            raise
        raise FetchError(f"{wheel.name} is damaged ({error}).") from error
    except _DAMAGE as error:
        raise FetchError(f"{wheel.name} is damaged ({error}).") from error


def _copy(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, on_bytes: Callable[[int], None]
) -> str:
    """Copy at most the declared size (zipfile reads no further), hash, flush to disk."""
    digest = hashlib.sha256()
    num_written = 0
    with archive.open(info) as source, target.open("xb") as sink:
        while chunk := source.read(_CHUNK_BYTES):
            sink.write(chunk)
            digest.update(chunk)
            num_written += len(chunk)
            on_bytes(num_written)
        sink.flush()
        os.fsync(sink.fileno())
    return digest.hexdigest()
