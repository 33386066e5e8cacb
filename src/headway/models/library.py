"""The models that this machine has: those with a name, those in Headway's cache, those in the hub's.

Headers are read, nothing else; what cannot be read is listed with the reason. Nothing is fetched.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headway.core.errors import FetchError, ModelFileError
from headway.models.hub_cache import cached_model, cached_snapshots, files_of, hub_cache_folder
from headway.models.hub_name import HubName, gguf_choices
from headway.models.sources import MODELS, cache_folder, cached_path, has_size, parse_source
from headway.models.summary import ModelSummary, summarise

Source = Literal["alias", "cache", "hub"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryEntry:
    """One model.

    name       what to type for it
    path       its file or folder; None = it is not here, or not whole
    num_bytes  size of its weights' files; of an alias also before it is fetched; None = unknown
    summary    what its headers say, if they could be read
    problem    why they could not, one sentence
    """

    name: str
    source: Source
    path: Path | None
    num_bytes: int | None
    summary: ModelSummary | None = None
    problem: str | None = None


def list_library(cache: Path, hub_cache: Path) -> tuple[LibraryEntry, ...]:
    """Return what lies under Headway's `cache` and the `hub_cache`, and every alias, fetched or not."""
    return (*_aliases(cache), *_others(cache), *_hub_models(hub_cache))


def find_here(name: str) -> Path:
    """Return the file or folder that the user's `name` of a model means, if it is on this machine; nothing is fetched.

    Raises ConfigError for a name that means nothing and FetchError, one line that says what to do, if it is not here.
    """
    source = parse_source(name)
    if isinstance(source, Path):
        return source
    if isinstance(source, HubName):
        found = cached_model(source, hub_cache_folder(), unlisted=True)
    else:
        path = cached_path(source, cache_folder())
        found = path if has_size(path, source.num_bytes) else None
    if found is None:
        raise FetchError(
            f"{name} is not on this machine, or not all of it: fetch it with `headway pull {name}`."
        )
    return found


def _aliases(cache: Path) -> Iterator[LibraryEntry]:
    for alias, model in MODELS.items():
        path = cached_path(model, cache)
        if has_size(path, model.num_bytes):
            yield _read(alias, "alias", path)
        else:
            yield LibraryEntry(name=alias, source="alias", path=None, num_bytes=model.num_bytes)


def _others(cache: Path) -> Iterator[LibraryEntry]:
    """What people put into the cache themselves: GGUF files and model folders."""
    known = {cached_path(model, cache) for model in MODELS.values()}
    for path in sorted((*cache.glob("*.gguf"), *cache.glob("*/*.gguf"))):
        if path not in known:
            yield _read(str(path), "cache", path)
    for path in sorted(cache.glob("*/config.json")):
        if path.parent.name not in MODELS:
            yield _read(str(path.parent), "cache", path.parent)


def _hub_models(hub_cache: Path) -> Iterator[LibraryEntry]:
    for name, snapshot in cached_snapshots(hub_cache):
        files = files_of(snapshot)
        meant = cached_model(name, hub_cache, unlisted=True)
        choices = gguf_choices(files)
        if meant == snapshot:
            yield _read(str(name), "hub", snapshot)
        elif not choices:
            yield _broken(name, files)
        for choice, file in choices.items():
            chosen = HubName(repository=name.repository, revision=name.revision, choice=choice)
            yield _read(str(name if meant == snapshot / file else chosen), "hub", snapshot / file)


def _broken(name: HubName, files: Collection[str]) -> LibraryEntry:
    reason = "is not whole" if files else "is empty"
    problem = f"What the hub's cache has of it {reason}, or in a format that is not supported: `headway pull {name}`."
    return LibraryEntry(name=str(name), source="hub", path=None, num_bytes=None, problem=problem)


def _read(name: str, source: Source, path: Path) -> LibraryEntry:
    try:
        summary = summarise(path)
    except ModelFileError as error:
        return LibraryEntry(name=name, source=source, path=path, num_bytes=None, problem=error.message)
    return LibraryEntry(name=name, source=source, path=path, num_bytes=summary.num_bytes, summary=summary)
