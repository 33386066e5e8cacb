"""What the hub cache holds, told from its folders alone: a model that is there costs no import of a hub's client.

Layout (huggingface_hub, "Understand caching"): `models--owner--name/refs/REVISION` names a commit, `snapshots/COMMIT/`
has links to `blobs/`; a file appears there only when it is whole. `trees/COMMIT.json`, where the client left one, lists
the repository's files, so that a fetch that was interrupted between two files is noticed.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from headway.core.errors import FetchError
from headway.models.hub_name import HubName, choose_files, parse_hub_name

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TREE_FORMAT = 1


def hub_cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the hub's client keeps its cache, as huggingface_hub decides it; it may not exist yet."""
    xdg = environ.get("XDG_CACHE_HOME", "~/.cache")
    home = environ.get("HF_HOME", os.path.join(xdg, "huggingface"))
    chosen = environ.get("HF_HUB_CACHE", environ.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub")))
    return Path(os.path.expanduser(os.path.expandvars(os.path.expanduser(chosen)))).absolute()


def repository_folder(repository: str, cache: Path) -> Path:
    """Return where `repository` ("owner/name") lies in the cache."""
    return cache / f"models--{repository.replace('/', '--')}"


def hub_repository(folder: Path) -> tuple[Path, str] | None:
    """Return the cache's folder of the repository whose snapshot `folder` is, and its id; None for other folders."""
    repository = folder.parent.parent
    if folder.parent.name != "snapshots" or not repository.name.startswith("models--"):
        return None
    return repository, _repository_id(repository)


def cached_model(name: HubName, cache: Path, *, unlisted: bool = False) -> Path | None:
    """Return the cached folder or GGUF file of `name` if all its files are there, else None; asks no hub.

    Without the client's list of the repository's files the answer is None, unless `unlisted`: then what lies there
    counts as all there is, if it makes up a model.
    """
    folder = repository_folder(name.repository, cache)
    commit = _commit(folder, name.revision)
    if commit is None:
        return None
    snapshot = folder / "snapshots" / commit
    files = listed_files(folder, commit)
    if files is None:
        if not unlisted:
            return None
        files = files_of(snapshot)
    try:
        chosen = choose_files(name, files)
    except FetchError:
        return None
    if not all((snapshot / file).is_file() for file in chosen.files):
        return None
    return snapshot / chosen.main if chosen.main else snapshot


def cached_snapshots(cache: Path) -> Iterator[tuple[HubName, Path]]:
    """Yield every snapshot that a branch or tag of a cached model names, by name; the snapshot may be broken or gone."""
    try:
        folders = sorted(cache.glob("models--*--*"))
    except OSError:
        return
    for folder in folders:
        repository = _repository_id(folder)
        references = folder / "refs"
        for path in sorted(references.rglob("*")):
            revision = str(path.relative_to(references))
            if path.is_file() and parse_hub_name(f"{repository}@{revision}"):
                commit = _commit(folder, revision)
                yield (
                    HubName(repository=repository, revision=revision),
                    folder / "snapshots" / (commit or "unknown"),
                )


def files_of(snapshot: Path) -> Collection[str]:
    """Return the names of the files that lie in a snapshot and are whole."""
    return [str(file.relative_to(snapshot)) for file in sorted(snapshot.rglob("*")) if file.is_file()]


def listed_files(folder: Path, commit: str) -> Collection[str] | None:
    """Return the names of all files of a commit, as the client noted them; None if it did not, or otherwise than we know."""
    try:
        tree = json.loads((folder / "trees" / f"{commit}.json").read_text())
        if tree["format_version"] != _TREE_FORMAT:
            return None
        return [file for file in tree["files"] if _stays_inside(file)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _repository_id(folder: Path) -> str:
    return folder.name.removeprefix("models--").replace("--", "/")


def _commit(folder: Path, revision: str) -> str | None:
    if _COMMIT.fullmatch(revision):
        return revision
    try:
        commit = (folder / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _stays_inside(file: str) -> bool:
    parts = PurePosixPath(file).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts
