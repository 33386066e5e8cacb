"""GGUF files made to harm: what they claim, and what memory they get for it. `test_gguf` has what is merely wrong."""

import os
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from headway.core.errors import ModelFileError
from headway.core.plan import TensorType
from headway.models.gguf import MAX_ARRAY_ELEMENTS, MAX_METADATA_KEYS, MAX_TENSORS, read_gguf
from support.gguf_writer import MetadataInput, TensorInput, encode_gguf

F32 = int(TensorType.F32)
U8, U64, BOOL, STRING, ARRAY = 0, 10, 7, 8, 9

METADATA: dict[str, MetadataInput] = {
    "general.architecture": "llama",
    "number": 7,
    "yes": True,
    "words": ["a", "", "naïve"],
    "floats": [1.0, 2.5],
}
TENSORS = (
    TensorInput("a", (4, 2), F32, struct.pack("<8f", *range(8))),
    TensorInput("b", (256,), int(TensorType.Q4_K), bytes(144)),
    TensorInput("c", (3,), F32, bytes(12)),
)
VALID = encode_gguf(METADATA, TENSORS)

SMALL_BYTES = 256 * 1024
"""What a header that only claims much may take."""


def array(kind: int, count: int, elements: bytes) -> bytes:
    return struct.pack("<IIQ", ARRAY, kind, count) + elements


def strings(*texts: str) -> bytes:
    return b"".join(struct.pack("<Q", len(text.encode())) + text.encode() for text in texts)


def read(path: Path) -> None:
    """Read `path`, valid or not; a refusal is one line that leaves the terminal alone."""
    try:
        tensors = read_gguf(path).tensors.values()
    except ModelFileError as error:
        message = error.message
    else:
        message = ""
        size = path.stat().st_size
        assert all(0 < tensor.offset <= size - tensor.num_bytes for tensor in tensors)
    assert message.isprintable()


def read_bounded(path: Path, bound_bytes: int) -> None:
    """Read `path`, whatever comes of it, and check that it took less memory than `bound_bytes`."""
    tracemalloc.start()
    try:
        read(path)
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes <= bound_bytes


@pytest.mark.parametrize(
    ("width", "value"), [(4, 2**31), (4, 2**32 - 1), (8, 2**63), (8, 2**64 - 8), (8, 2**64 - 1)]
)
def test_no_lie_at_any_place_is_believed(tmp_path: Path, width: int, value: int) -> None:
    """Counts, lengths, sizes and offsets that are negative, or overflow when added to, in a reader with fewer bits."""
    path = tmp_path / "model.gguf"
    path.write_bytes(VALID)
    end = min(tensor.offset for tensor in read_gguf(path).tensors.values())
    tracemalloc.start()
    with path.open("r+b") as file:
        for at in range(4, end - width + 1):
            os.pwrite(file.fileno(), value.to_bytes(width, "little"), at)
            read(path)
            os.pwrite(file.fileno(), VALID[at : at + width], at)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < SMALL_BYTES


@pytest.mark.parametrize("length", range(4, len(VALID), 29))
def test_a_hole_instead_of_the_rest_is_refused_or_harmless(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(VALID[:length])
    os.truncate(path, 1 << 40)  # takes no space; every length seems to fit
    read_bounded(path, SMALL_BYTES)


@pytest.mark.parametrize(
    "data",
    [
        b"GGUF" + struct.pack("<IQQ", 3, MAX_TENSORS, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, MAX_METADATA_KEYS),
        encode_gguf({"k": array(STRING, MAX_ARRAY_ELEMENTS, b"")}),
        encode_gguf({"k": array(U64, MAX_ARRAY_ELEMENTS, b"")}),
        encode_gguf({"k": array(BOOL, MAX_ARRAY_ELEMENTS, b"")}),
        encode_gguf({"k": struct.pack("<IQ", STRING, 2**40)}),
        encode_gguf({"k": array(ARRAY, 1, array(ARRAY, 1, b"")[4:] * 50_000)}),
        encode_gguf({}, [TensorInput("t", (2**32,) * 4, F32, b"")]),
    ],
    ids=["tensors", "keys", "strings", "integers", "bools", "text", "nested arrays", "a large tensor"],
)
def test_a_claim_alone_gets_no_memory(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFileError):
        read_gguf(path)
    read_bounded(path, SMALL_BYTES + len(data))


@pytest.mark.parametrize(
    ("metadata", "num_elements", "num_tensors"),
    [
        ({"k": "a" * 200_000 + "\U0001f600"}, 0, 0),
        ({"k": array(STRING, 20_000, strings("ab") * 20_000)}, 20_000, 0),
        ({"k": array(STRING, 20_000, strings("\U0001f600b") * 20_000)}, 20_000, 0),
        ({"k": array(STRING, 20_000, strings("") * 20_000)}, 20_000, 0),
        ({"k": array(U64, 50_000, b"\xff" * 400_000)}, 50_000, 0),
        ({"k": array(U8, 200_000, bytes(200_000))}, 200_000, 0),
        ({"k": array(BOOL, 200_000, b"\x01" * 200_000)}, 200_000, 0),
        ({f"{key}": key for key in range(5_000)}, 0, 0),
        ({}, 0, 5_000),
    ],
    ids=["text", "strings", "wide", "empty", "integers", "bytes", "bools", "keys", "tensors"],
)
def test_memory_stays_within_what_the_reader_states(
    tmp_path: Path, metadata: dict[str, MetadataInput], num_elements: int, num_tensors: int
) -> None:
    data = encode_gguf(
        metadata,
        [TensorInput(f"{name}", (1,) * 4, F32, bytes(4), offset=32 * name) for name in range(num_tensors)],
    )
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    bound_bytes = 6 * len(data) + 112 * num_elements + 1024 * (len(metadata) + num_tensors)
    read_bounded(path, bound_bytes + SMALL_BYTES)


def test_time_grows_with_the_file_and_not_with_its_square(tmp_path: Path) -> None:
    """Tensors that all overlap, keys that all collide in length: nothing is compared with everything."""
    path = tmp_path / "model.gguf"
    path.write_bytes(
        encode_gguf({}, [TensorInput(f"{name:05}", (1,), F32, bytes(32), offset=0) for name in range(20_000)])
    )
    start = time.process_time()
    with pytest.raises(ModelFileError, match="overlap"):
        read_gguf(path)
    assert time.process_time() - start < 5  # measured: 0.2 s
