"""KV blocks as files, within a budget of bytes: the least recently used go first, and what is there survives a restart.

    FOLDER/lock                     held while a process uses the folder: a second one goes without
    FOLDER/kv-<identity>/<digest>   one block; its modification time is that of its last use

`identity` hashes what the bytes come of besides the tokens (system fingerprint, block size), which each file also spells
out. Blocks of other identities are never read; they count against the budget and go first. A file is written beside its
name and renamed; nothing is synced, since a torn file fails its checksum, which costs a miss.

No method raises for what the file system does: the first failure of a kind is logged, and a block that cannot be read
or written is a miss. Nothing but files of these names is ever removed. It belongs to one thread, except `in`, which any
may ask.
"""

import fcntl
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from headway.kv.stored_block import BadBlock, StoredBlock, Wanted, decode, encode

logger = logging.getLogger(__name__)

_FOLDER_NAME = re.compile(r"kv-[0-9a-f]{32}")
_FILE_NAME = re.compile(r"[0-9a-f]{8,128}")
_UNFINISHED = ".tmp"

_NOTHING_ELSE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Neither a link to what is not ours, such as a device without an end, nor a pipe whose other end nobody opens."""

WriteFile = Callable[[Path, bytes], None]
"""Creates or replaces a file; raises OSError."""


class FolderInUse(Exception):
    """Another process keeps its blocks in this folder."""


def write_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read: tokens are what people said. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NOTHING_ELSE, 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]


def _read_file(path: Path, num_bytes: int) -> bytes:
    """Read a file that should have `num_bytes`, and hardly more if it has; raises OSError, or BadBlock for what is none."""
    with open(os.open(path, os.O_RDONLY | _NOTHING_ELSE), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadBlock("it is no file")
        return file.read(num_bytes + 1)


class BlockFiles:
    """Owns a folder while it is open. Raises FolderInUse, or OSError for a folder that cannot be used."""

    def __init__(
        self, folder: Path, identity: str, max_bytes: int, write_file: WriteFile = write_file
    ) -> None:
        self._identity = identity.encode()
        self._max_bytes = max_bytes
        self._write_file = write_file
        self._complaints: set[str] = set()
        name = f"kv-{blake2b(self._identity, digest_size=16).hexdigest()}"
        self._folder = folder / name
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _lock(folder / "lock")
        try:
            self._foreign = _blocks_by_age(path for path in _folders(folder) if path.name != name)
            own = _blocks_by_age([self._folder])
        except OSError:
            self.close()  # who goes without it keeps it from nobody
            raise
        self._sizes = {bytes.fromhex(path.name): size for path, size in own}  # least recently used first
        self.num_bytes = sum(self._sizes.values()) + sum(size for _, size in self._foreign)
        self._make_room(0)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._sizes

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)

    def write(self, block: StoredBlock) -> bool:
        """Keep a block; return whether it was new and is there now."""
        if block.digest in self._sizes:
            return False
        content = encode(block, self._identity)
        if len(content) > self._max_bytes:
            return False
        self._make_room(len(content))
        path = self._path(block.digest)
        unfinished = path.with_suffix(_UNFINISHED)
        try:
            self._write_file(unfinished, content)
            unfinished.replace(path)
        except OSError as error:
            self._complain("written", error)
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            return False
        self._sizes[block.digest] = len(content)
        self.num_bytes += len(content)
        return True

    def read(self, wanted: Wanted) -> StoredBlock | None:
        """Return a block whose checksum is right, or None; one that cannot be used is dropped."""
        size = self._sizes.get(wanted.digest)
        if size is None:
            return None
        path = self._path(wanted.digest)
        try:
            block = decode(_read_file(path, size), wanted.digest, self._identity)
        except (OSError, BadBlock) as error:
            self._complain("read", error)
            self.drop(wanted.digest)
            return None
        if not block.answers(wanted):
            return None
        self.touch((wanted.digest,))
        return block

    def touch(self, digests: Iterable[bytes]) -> None:
        """Note that blocks were used, the last one last; unknown ones are ignored."""
        for digest in digests:
            size = self._sizes.pop(digest, None)
            if size is not None:
                self._sizes[digest] = size
                with suppress(OSError):
                    os.utime(self._path(digest))

    def drop(self, digest: bytes) -> None:
        """Remove a block; unknown ones are ignored."""
        size = self._sizes.pop(digest, None)
        if size is not None:
            self._remove(self._path(digest), size)

    def _path(self, digest: bytes) -> Path:
        return self._folder / digest.hex()

    def _make_room(self, num_bytes: int) -> None:
        while self._foreign and self.num_bytes + num_bytes > self._max_bytes:
            self._remove(*self._foreign.pop(0))
        while self._sizes and self.num_bytes + num_bytes > self._max_bytes:
            self.drop(next(iter(self._sizes)))

    def _remove(self, path: Path, size: int) -> None:
        self.num_bytes -= size
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._complain("removed", error)

    def _complain(self, what: str, error: Exception) -> None:
        if what not in self._complaints:
            logger.warning("a KV block could not be %s: %s; more of these are not logged", what, error)
            self._complaints.add(what)


def _lock(path: Path) -> int:
    """Return the descriptor that holds the lock, until it is closed or the process ends (flock(2))."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise FolderInUse(f"another process uses {path.parent}") from None
        raise
    return descriptor


def _folders(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if (
                _FOLDER_NAME.fullmatch(entry.name)
                and entry.is_dir(follow_symlinks=False)
                and os.access(entry.path, os.R_OK | os.W_OK | os.X_OK)  # another user's is not ours to clear
            ):
                yield Path(entry.path)


def _blocks_by_age(folders: Iterator[Path] | list[Path]) -> list[tuple[Path, int]]:
    """Return the files of blocks with their sizes, least recently used first; remove what a crash left half written."""
    found = []
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, suffix = os.path.splitext(entry.name)
                if not _FILE_NAME.fullmatch(stem) or not entry.is_file(follow_symlinks=False):
                    continue
                if suffix == _UNFINISHED:
                    with suppress(OSError):
                        os.unlink(entry.path)
                elif not suffix and len(stem) % 2 == 0:
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, Path(entry.path), status.st_size))
    return [(path, size) for _, path, size in sorted(found)]
