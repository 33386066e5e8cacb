"""A model's folder: which files it may bring along, those that lie in it and what a hub cache keeps beside it.

A folder fetched from somewhere may hold symbolic links, and whoever follows them without looking reads, and perhaps
shows, any file of this machine. The one link that is expected is the hub cache's own: `snapshots/COMMIT/config.json`
leads to `blobs/HASH` of the same repository, or through it to the blobs that all repositories of the cache share
(huggingface_hub, "Understand caching"). It knows no file's format.
"""

import stat
from pathlib import Path

from headway.core.errors import ModelFileError
from headway.models.hub_cache import hub_repository

LFS_MAGIC = b"version https://git-lfs.github.com/spec/"
"""What the files begin with that a clone without Git LFS has in the place of large ones."""


def is_folder(path: Path) -> bool:
    """Whether the model at `path` is a folder; raises ModelFileError, one line, for a path that cannot be looked at."""
    try:
        return path.is_dir()
    except (OSError, ValueError) as error:  # a folder that may not be searched, too long a name, a null byte
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path}: cannot be read ({reason}).") from error


def check_inside(folder: Path, path: Path) -> Path:
    """Return the real path of the regular file at `path`, which `folder` names as its own; open that, not `path`.

    `folder` itself may be a link: the user named it. Raises ModelFileError, one line, if the file is missing, is no
    regular file, or is a link (or lies behind one) that leads out of the folder.
    """
    try:
        home = folder.resolve(strict=True)
        real = path.resolve(strict=True)
        is_file = stat.S_ISREG(real.stat().st_mode)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links, up to Python 3.12
        reason = getattr(error, "strerror", None) or "a link that leads nowhere or a name that cannot be"
        raise ModelFileError(f"{path}: cannot be read ({reason}).") from error
    if not any(real.is_relative_to(allowed) for allowed in (home, *_blobs(home))):
        raise ModelFileError(
            f"{path}: is a symbolic link out of the model's folder; put the file itself there if you trust it."
        )
    if not is_file:
        raise ModelFileError(f"{path}: not a regular file.")
    return real


def read_inside(folder: Path, name: str, *, max_bytes: int) -> bytes:
    """Return the content of the file `name` of `folder`.

    Raises ModelFileError, one line, for what `check_inside` refuses, and if it is longer than `max_bytes` or not there
    but by a pointer of Git LFS.
    """
    path = folder / name
    try:
        with check_inside(folder, path).open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if len(data) > max_bytes:
        raise ModelFileError(f"{path}: is larger than {max_bytes} bytes, which is not supported.")
    refuse_lfs_pointer(path, data)
    return data


def refuse_lfs_pointer(path: Path, beginning: bytes) -> None:
    """Raise ModelFileError if a file begins as Git LFS's do (github.com/git-lfs/git-lfs, docs/spec.md)."""
    if beginning.startswith(LFS_MAGIC):
        raise ModelFileError(
            f"{path}: is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder."
        )


def _blobs(home: Path) -> tuple[Path, ...]:
    found = hub_repository(home)
    if found is None:
        return ()
    repository, _ = found
    return repository / "blobs", repository.parent / "blobs"
