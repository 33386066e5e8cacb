"""A GGUF model in one file or in several: `read_gguf_model` is given the only file or the first shard.

Shards are those of llama.cpp's gguf-split: files named so (`shard_name`), each with the metadata keys `split.no`
(from 0), `split.count` and `split.tensors.count` (of all shards together); the first holds the model's other metadata
(llama.cpp, tools/gguf-split). The others' names follow from the name the user gave, never from what a file says. A shard
that is a symbolic link has to lead to where the first shard really lies, or to stay in the folder
(`headway.models.model_folder`). It knows no architecture.
"""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from headway.core.errors import ModelFileError
from headway.models.gguf import MAX_TENSORS, read_gguf
from headway.models.gguf_file import GgufFile, GgufTensor
from headway.models.model_folder import check_inside
from headway.models.shard_name import parse_shard_name

# The largest models seen (670 billion parameters in bf16, 50 GB a file) have 30 shards.
MAX_SHARDS = 1024


def read_gguf_model(path: Path) -> GgufFile:
    """Read and validate the GGUF file at `path`, and if it is the first of several shards, all of them.

    Raises ModelFileError, one sentence with file and reason: a shard is missing, is not the first, belongs to another
    model, holds a tensor twice, or is no valid GGUF file.
    """
    first = read_gguf(path)
    count = first.integer("split.count", 1)
    if count <= 1:  # gguf-split writes no 0, but llama.cpp takes it for a single file too
        return first
    if count > MAX_SHARDS:
        raise ModelFileError(f"{path}: it claims {count} shards; at most {MAX_SHARDS} are supported.")
    names = _shard_names(path, first.integer("split.no"), count)
    total = first.integer("split.tensors.count")
    tensors = dict(first.tensors)
    more_files: list[Path] = []
    for number in range(1, count):
        shard = _read_shard(path, path.with_name(names[number]), number, count, total)
        more_files.append(shard.path)
        _add_tensors(tensors, shard, number)
    if len(tensors) != total:
        raise ModelFileError(f"{path}: its {count} shards hold {len(tensors)} tensors instead of {total}.")
    return replace(first, tensors=MappingProxyType(tensors), more_files=tuple(more_files))


def _shard_names(path: Path, number: int, count: int) -> tuple[str, ...]:
    """Return the names of all shards. Raises ModelFileError if `path` is not named as the first of `count`."""
    name = parse_shard_name(path.name)
    if name is None or name.count != count:
        raise ModelFileError(
            f"{path}: it is shard {number + 1} of {count} but is not named so (NAME-{number + 1:05}-of-{count:05}"
            ".gguf); give the shards the names they were made with."
        )
    names = tuple(name.of(index + 1) for index in range(count))
    if number != 0:
        raise ModelFileError(f"{path}: it is shard {number + 1} of {count}; name the first one, {names[0]}.")
    if path.name != names[0]:
        raise ModelFileError(f"{path}: it is the first of {count} shards but has another one's name.")
    return names


def _read_shard(first: Path, path: Path, number: int, count: int, total: int) -> GgufFile:
    try:
        path.lstat()
    except OSError as error:
        raise ModelFileError(
            f"{path}: shard {number + 1} of {count} cannot be read ({error.strerror}); all of them must lie in one folder."
        ) from error
    shard = read_gguf(_real_path(first, path))
    if shard.integer("split.count") != count or shard.integer("split.tensors.count") != total:
        raise ModelFileError(f"{path}: it is a shard of another model than {first.name}.")
    if shard.integer("split.no") != number:
        raise ModelFileError(
            f"{path}: by its contents it is shard {shard.integer('split.no') + 1}, not {number + 1}, of {count}."
        )
    return shard


def _real_path(first: Path, path: Path) -> Path:
    try:
        real = path.resolve(strict=True)
        if real.parent == first.resolve(strict=True).parent:
            return real
    except (OSError, RuntimeError):  # a link that leads nowhere, or in a circle; the check below says so
        pass
    return check_inside(path.parent, path)


def _add_tensors(tensors: dict[str, GgufTensor], shard: GgufFile, number: int) -> None:
    for name, tensor in shard.tensors.items():
        if name in tensors:
            raise ModelFileError(f"{shard.path}: its tensor {name!r} is in an earlier shard too.")
        tensors[name] = replace(tensor, file=number)
    if len(tensors) > MAX_TENSORS:
        raise ModelFileError(f"{shard.path}: up to it the shards hold more than {MAX_TENSORS} tensors.")
