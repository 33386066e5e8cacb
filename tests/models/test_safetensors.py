import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from headway.core.errors import ModelFileError
from headway.models import strict_json
from headway.models.safetensors import MAX_HEADER_BYTES, SafetensorsTensor, read_safetensors

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
B = {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}


def encode(header: bytes | dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    """Return a file with this header, well-formed or not, and what follows it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_tensors_lie_where_the_header_says(path: Path) -> None:
    data = encode({"b": B, "a": A, "__metadata__": {"format": "pt"}}, bytes(32))
    path.write_bytes(data)
    file = read_safetensors(path)
    start = len(data) - 32
    assert file.path == path
    assert file.metadata == {"format": "pt"}
    assert dict(file.tensors) == {
        "a": SafetensorsTensor("a", "F32", (2, 3), start, 24),
        "b": SafetensorsTensor("b", "BF16", (4,), start + 24, 8),
    }


def test_files_of_the_reference_implementation_are_read(path: Path) -> None:
    generator = np.random.default_rng(0)
    arrays: dict[str, npt.NDArray[Any]] = {
        "matrix": generator.standard_normal((3, 5)).astype(np.float32),
        "half": generator.standard_normal(7).astype(np.float16),
        "stack": generator.integers(0, 9, (2, 3, 4)),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(3.0),
        "näme \"with\" \\ all": np.ones(1, np.uint8),
    }  # fmt: skip
    save_file(arrays, path, metadata={"format": "np"})
    file, data = read_safetensors(path), path.read_bytes()
    assert file.tensors.keys() == arrays.keys()
    for name, values in arrays.items():
        tensor = file.tensors[name]
        assert tensor.shape == values.shape
        assert data[tensor.offset : tensor.offset + tensor.num_bytes] == values.tobytes()


def test_a_file_without_tensors_is_valid(path: Path) -> None:
    path.write_bytes(encode({}))
    assert dict(read_safetensors(path).tensors) == {}


def test_padding_of_the_header_is_allowed(path: Path) -> None:
    path.write_bytes(encode(json.dumps({"a": A}).encode() + b"     ", bytes(24)))
    assert list(read_safetensors(path).tensors) == ["a"]


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ends within the header"),
    "shorter than a length": (b"\x08\0\0", "ends within the header"),
    "header cut off": (encode({"a": A}, length=1000), "ends within the header"),
    "huge length": (encode({"a": A}, length=2**64 - 1), "ends within the header"),
    "header of length 0": (encode(b""), "does not start with '{'"),
    "a GGUF file": (b"GGUF\x03\0\0\0" + bytes(64), "ends within the header"),
    "a zip": (b"PK\x03\x04" + bytes(80), "ends within the header"),
    "space before the header": (encode(b" {}"), "does not start with '{'"),
    "no JSON": (encode(b"{]"), "the header is not valid JSON"),
    "text after the JSON": (encode(b"{}{}"), "the header is not valid JSON"),
    "no UTF-8": (encode(b'{"\xff": 1}'), "the header is not valid UTF-8"),
    "deep JSON": (encode(b'{"a":' + b"[" * 200_000), "nested too deeply"),
    "deep objects": (encode(b'{"a":' * 100_000), "nested too deeply"),
    "too many digits": (encode(b'{"a":' + b"1" * 10_000 + b"}"), "not valid JSON"),
    "NaN": (encode(b'{"a":NaN}'), "NaN is no number"),
    "duplicate tensor": (
        encode(b'{"a":%b,"a":%b}' % ((json.dumps(A).encode(),) * 2), bytes(24)),
        "the key 'a' occurs twice",
    ),
    "duplicate key": (
        encode(b'{"a":{"dtype":"F32","dtype":"U8","shape":[],"data_offsets":[0,4]}}', bytes(4)),
        "the key 'dtype' occurs twice",
    ),
    "metadata of numbers": (encode({"__metadata__": {"a": 1}}), "__metadata__ is not an object of strings"),
    "metadata a list": (encode({"__metadata__": []}), "__metadata__ is not an object of strings"),
    "tensor a number": (encode({"a": 1}), "is not an object of dtype, shape and data_offsets"),
    "missing shape": (encode({"a": {"dtype": "F32", "data_offsets": [0, 4]}}), "is not an object of dtype"),
    "one key more": (encode({"a": {**A, "x": 1}}, bytes(24)), "is not an object of dtype"),
    "unknown dtype": (encode({"a": {**A, "dtype": "F31"}}, bytes(24)), "unknown dtype 'F31'"),
    "dtype a list": (encode({"a": {**A, "dtype": ["F32"]}}, bytes(24)), "unknown dtype"),
    "shape a number": (encode({"a": {**A, "shape": 6}}, bytes(24)), "no shape of up to 8 sizes"),
    "shape of strings": (encode({"a": {**A, "shape": ["6"]}}, bytes(24)), "no shape"),
    "shape of bools": (encode({"a": {**A, "shape": [True, 6]}}, bytes(24)), "no shape"),
    "shape of floats": (encode({"a": {**A, "shape": [6.0]}}, bytes(24)), "no shape"),
    "negative shape": (encode({"a": {**A, "shape": [-2, -3]}}, bytes(24)), "no shape"),
    "nine dimensions": (encode({"a": {**A, "shape": [1] * 8 + [6]}}, bytes(24)), "no shape"),
    "a shape that wraps around": (
        encode({"a": {**A, "shape": [2**32, 2**32, 2**2]}}, bytes(24)),
        "has 24 bytes, but its shape and dtype need",
    ),
    "a size beyond 63 bits": (encode({"a": {**A, "shape": [2**63]}}, bytes(24)), "no shape"),
    "one offset": (encode({"a": {**A, "data_offsets": [24]}}, bytes(24)), "no data_offsets"),
    "negative offset": (encode({"a": {**A, "data_offsets": [-24, 0]}}, bytes(24)), "no data_offsets"),
    "end before begin": (encode({"a": {**A, "data_offsets": [24, 0]}}, bytes(24)), "no data_offsets"),
    "offset a float": (encode({"a": {**A, "data_offsets": [0, 24.0]}}, bytes(24)), "no data_offsets"),
    "too few bytes": (encode({"a": {**A, "data_offsets": [0, 20]}}, bytes(20)), "has 20 bytes, but .* need 24"),
    "half a byte": (
        encode({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, bytes(2)),
        "has 2 bytes, but .* need 2",
    ),
    "data out of the file": (encode({"a": A}, bytes(23)), r"the data ends at byte \d+, but the file has only"),
    "data far out": (
        encode({"a": {"dtype": "U8", "shape": [2**62], "data_offsets": [0, 2**62]}}),
        "the file has only",
    ),
    "overlap": (
        encode({"a": A, "b": {**B, "data_offsets": [20, 28]}}, bytes(28)),
        "the data of tensor 'b' overlaps that of 'a'",
    ),
    "same place": (encode({"a": A, "b": A}, bytes(24)), "overlaps"),
    "gap at the begin": (encode({"b": B}, bytes(32)), "leaves a gap after the header"),
    "gap in between": (
        encode({"a": A, "b": {**B, "data_offsets": [25, 33]}}, bytes(33)),
        "'b' leaves a gap after that of 'a'",
    ),
    "bytes at the end": (encode({"a": A}, bytes(25)), "1 bytes follow the data of the last tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_one_line(path: Path, name: str) -> None:
    data, reason = HOSTILE[name]
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=reason) as caught:
        read_safetensors(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < len(str(path)) + 400


def test_control_characters_of_names_stay_out_of_errors(path: Path) -> None:
    path.write_bytes(encode({"\x1b[31m" * 100: 1}))
    with pytest.raises(ModelFileError) as caught:
        read_safetensors(path)
    assert caught.value.message.isprintable()


def test_a_header_beyond_the_limit_is_refused_unread(path: Path) -> None:
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", MAX_HEADER_BYTES + 1))
        stream.truncate(MAX_HEADER_BYTES * 2)  # sparse
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=f"at most {MAX_HEADER_BYTES} are supported"):
            read_safetensors(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_number_of_values_is_bounded_before_they_are_built(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_json, "MAX_VALUES", 1000)
    path.write_bytes(encode(b'{"a":[' + b"0," * 1000 + b"0]}"))
    with pytest.raises(ModelFileError, match="the header has more than 1000 values"):
        read_safetensors(path)


def test_many_tensors_fit_within_the_limits() -> None:
    """A file of every tensor of the largest open model is far within them."""
    entry = '"model.layers.60.mlp.experts.255.down_proj.weight":{"dtype":"BF16","shape":[7168,2048],'
    entry += '"data_offsets":[1300000000000,1300029360128]},'
    assert 90_000 * len(entry) < MAX_HEADER_BYTES / 2
    assert 90_000 * sum(map(entry.count, ",:[{")) < strict_json.MAX_VALUES


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in [
        (tmp_path, "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "missing", "cannot be read"),
        (tmp_path / "null\0byte", "cannot be read"),
    ]:
        with pytest.raises(ModelFileError, match=reason):
            read_safetensors(path)
