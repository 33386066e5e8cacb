"""The weights of a Hugging Face folder: which safetensors files it has, and where every tensor lies in them.

One file, model.safetensors, or several with an index, model.safetensors.index.json, as `transformers` writes them.
Files that the index does not name are left alone; a tensor that it does not name is refused. Headers are read and
validated, tensor data is not.
"""

import os
from pathlib import Path
from typing import Final

from headway.core.errors import ModelFileError
from headway.core.plan import TensorType
from headway.models.hf_names import is_ignored
from headway.models.model_folder import check_inside
from headway.models.placement import StoredTensor
from headway.models.quote import quoted
from headway.models.safetensors import SafetensorsFile, read_safetensors
from headway.models.strict_json import read_json_file

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLED: Final = "pytorch_model*.bin"
MAX_INDEX_BYTES: Final = 32 * 1024 * 1024  # the largest models have some 90,000 tensors, below 10 MB
MAX_SHARDS: Final = 1024  # the largest models have fewer than 200
_TYPES: Final = {"F32": TensorType.F32, "F16": TensorType.F16, "BF16": TensorType.BF16}


def read_weights(folder: Path) -> tuple[tuple[Path, ...], dict[str, StoredTensor]]:
    """Return the folder's safetensors files and where each tensor lies in them.

    Raises ModelFileError, one sentence, for files that are missing, invalid, out of the folder, or contradict the index,
    and for tensors of other types than F32, F16 and BF16.
    """
    if os.path.lexists(folder / WEIGHTS):  # what `transformers` prefers, too
        file = read_safetensors(check_inside(folder, folder / WEIGHTS))
        return (file.path,), _stored(file, 0)
    if os.path.lexists(folder / INDEX):
        return _read_shards(folder)
    if any(folder.glob(PICKLED)):
        raise ModelFileError(
            f"{folder}: its weights are pickled ({PICKLED}), and unpickling can run code: save the model anew with "
            "transformers, which writes safetensors."
        )
    raise ModelFileError(f"{folder}: has neither {WEIGHTS} nor {INDEX}; other formats are not supported.")


def _read_shards(folder: Path) -> tuple[tuple[Path, ...], dict[str, StoredTensor]]:
    index = read_json_file(folder, INDEX, max_bytes=MAX_INDEX_BYTES)
    places = _weight_map(folder / INDEX, index.get("weight_map"))
    names = sorted(set(places.values()))
    if len(names) > MAX_SHARDS:
        raise ModelFileError(
            f"{folder / INDEX}: names {len(names)} files; at most {MAX_SHARDS} are supported."
        )
    paths: list[Path] = []
    tensors: dict[str, StoredTensor] = {}
    for number, name in enumerate(names):
        file = read_safetensors(check_inside(folder, folder / name))
        for tensor in file.tensors:
            if places.get(tensor) != name:
                raise ModelFileError(
                    f"{folder / name}: holds the tensor {quoted(tensor)}, which {INDEX} does not say."
                )
        paths.append(file.path)
        tensors |= _stored(file, number)
    for tensor, name in places.items():
        if tensor not in tensors:
            raise ModelFileError(
                f"{folder / name}: the tensor {quoted(tensor)} is missing, which {INDEX} says is there."
            )
    return tuple(paths), tensors


def _weight_map(path: Path, value: object) -> dict[str, str]:
    """Return the file's name of each tensor, checked to be a plain name of a safetensors file."""
    if not isinstance(value, dict) or not value:
        raise ModelFileError(f"{path}: has no weight_map from tensors to files.")
    for tensor, name in value.items():
        if not (isinstance(name, str) and name.endswith(".safetensors") and name.isprintable()) or (
            name.startswith(".") or {"/", "\\"} & set(name)
        ):
            raise ModelFileError(
                f"{path}: the tensor {quoted(tensor)} is in {quoted(name)}, "
                "which is no plain name of a safetensors file."
            )
    return value


def _stored(file: SafetensorsFile, number: int) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    for name, tensor in file.tensors.items():
        kind = _TYPES.get(tensor.dtype)
        if kind is None and is_ignored(name):  # such as the positions of a vision model, which are integers
            continue
        if kind is None:
            raise ModelFileError(
                f"{file.path}: the tensor {quoted(name)} is of type {tensor.dtype}, which is not supported "
                f"(supported: {', '.join(_TYPES)})."
            )
        found[name] = StoredTensor(tensor.shape, kind, number, tensor.offset, tensor.num_bytes)
    return found
