"""What a model file or folder says about itself, from headers alone: for people who list and inspect models.

It computes nothing and loads no weights; whether the model can be run is `architectures`' to say, and what it can do with
text `text_side`'s. Text from a file is cleaned of control characters, so that it can be shown in a terminal.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.models.gguf_file import GgufFile
from headway.models.gguf_shards import read_gguf_model
from headway.models.hf_config import read_config
from headway.models.hf_weights import read_weights
from headway.models.model_folder import is_folder

_MAX_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeUse:
    """What a model holds of one storage type."""

    type: str
    num_tensors: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """What headers tell. None = they do not tell.

    rope_scaling    how positions beyond the trained ones are reached, as the file names it
    num_parameters  elements of all tensors
    num_bytes       size of the files that hold the tensors
    tokenizer       kind, as the file names it
    """

    name: str | None
    architecture: str | None
    licence: str | None
    context: int | None
    rope_scaling: str | None
    num_parameters: int
    num_bytes: int
    types: tuple[TypeUse, ...]
    tokenizer: str | None
    vocab_size: int | None


def summarise(path: Path) -> ModelSummary:
    """Read what the GGUF file, first shard or Hugging Face folder at `path` says.

    Raises ModelFileError, one line, if it is invalid.
    """
    return _summarise_folder(path) if is_folder(path) else _summarise_gguf(read_gguf_model(path))


def printable(text: str) -> str:
    """Return text from a file without control characters and without flooding a terminal."""
    clean = "".join(
        character if character.isprintable() else "?" for character in text[:_MAX_SHOWN_CHARACTERS]
    )
    return clean + "…" * (len(text) > _MAX_SHOWN_CHARACTERS)


def _summarise_gguf(file: GgufFile) -> ModelSummary:
    metadata = file.metadata
    architecture = _text(metadata, "general.architecture")
    tokenizer = [_text(metadata, f"tokenizer.ggml.{key}") for key in ("model", "pre")]
    tokens = metadata.get("tokenizer.ggml.tokens")
    return ModelSummary(
        name=_text(metadata, "general.name"),
        architecture=architecture,
        licence=_text(metadata, "general.license"),
        context=_count(metadata, f"{architecture}.context_length"),
        rope_scaling=_gguf_scaling(file, f"{architecture}.rope.scaling"),
        num_parameters=sum(math.prod(tensor.dims) for tensor in file.tensors.values()),
        num_bytes=sum(path.stat().st_size for path in (file.path, *file.more_files)),
        types=_types((tensor.type.name, tensor.num_bytes) for tensor in file.tensors.values()),
        tokenizer=", ".join(part for part in tokenizer if part) or None,
        vocab_size=len(tokens) if isinstance(tokens, tuple) else None,
    )


def _summarise_folder(folder: Path) -> ModelSummary:
    config = read_config(folder).values
    files, tensors = read_weights(folder)
    text_config = config.get("text_config")
    sizes = text_config if isinstance(text_config, dict) else config
    return ModelSummary(
        name=None,
        architecture=_text(config, "model_type"),
        licence=None,
        context=_count(sizes, "max_position_embeddings"),
        rope_scaling=_folder_scaling(sizes),
        num_parameters=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        num_bytes=sum(file.stat().st_size for file in files),
        types=_types((tensor.type.name, tensor.num_bytes) for tensor in tensors.values()),
        tokenizer=next(
            (name for name in ("tokenizer.json", "tokenizer.model") if (folder / name).is_file()), None
        ),
        vocab_size=_count(sizes, "vocab_size"),
    )


def _gguf_scaling(file: GgufFile, prefix: str) -> str | None:
    kind, factor = _text(file.metadata, f"{prefix}.type"), file.metadata.get(f"{prefix}.factor")
    if kind in (None, "none"):
        return "by a table in the file" if any("rope_f" in name for name in file.tensors) else None
    return f"{kind}, factor {factor:g}" if isinstance(factor, float) else kind


def _folder_scaling(config: Mapping[str, object]) -> str | None:
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, dict):
        return None
    kind, factor = _text(scaling, "rope_type") or _text(scaling, "type"), scaling.get("factor")
    if kind in (None, "default"):
        return None
    return f"{kind}, factor {factor:g}" if isinstance(factor, (int, float)) else kind


def _types(tensors: Iterable[tuple[str, int]]) -> tuple[TypeUse, ...]:
    """Return the storage types, the one with most bytes first."""
    found: dict[str, tuple[int, int]] = {}
    for kind, num_bytes in tensors:
        num_tensors, total = found.get(kind, (0, 0))
        found[kind] = num_tensors + 1, total + num_bytes
    uses = [TypeUse(type=kind, num_tensors=count, num_bytes=total) for kind, (count, total) in found.items()]
    return tuple(sorted(uses, key=lambda use: (-use.num_bytes, use.type)))


def _text(values: Mapping[str, object], key: str) -> str | None:
    value = values.get(key)
    return printable(value) if isinstance(value, str) and value else None


def _count(values: Mapping[str, object], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
