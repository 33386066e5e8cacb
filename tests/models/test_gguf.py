import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.core.errors import ModelFileError
from headway.core.plan import TensorType
from headway.models import gguf
from headway.models.gguf import read_gguf
from support.gguf_writer import MetadataInput, TensorInput, encode_gguf

F32, Q8_0 = int(TensorType.F32), int(TensorType.Q8_0)
TENSORS = (
    TensorInput("a", (4, 2), F32, struct.pack("<8f", *range(8))),
    TensorInput("b", (32,), Q8_0, bytes(34)),
)
METADATA: dict[str, MetadataInput] = {
    "general.architecture": "llama",
    "number": 7,
    "ratio": 0.5,
    "yes": True,
    "words": ["Ġthe", "", "naïve"],
    "codes": [1, -2, 3],
    "floats": [1.0, 2.5],
}
VALID = encode_gguf(METADATA, TENSORS)

Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(data: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return path

    return to_file


def refusal(path: Path) -> str:
    """Return the refusal's reason, checked to be one sentence that names the file."""
    with pytest.raises(ModelFileError) as caught:
        read_gguf(path)
    message = caught.value.message
    assert message.startswith(f"{path}: ")
    assert message.endswith(".")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_metadata_of_every_kind_is_read(write: Write) -> None:
    file = read_gguf(write(VALID))
    assert file.version == 3
    assert dict(file.metadata) == {
        "general.architecture": "llama",
        "number": 7,
        "ratio": 0.5,
        "yes": True,
        "words": ("Ġthe", "", "naïve"),
        "codes": (1, -2, 3),
        "floats": (1.0, 2.5),
    }


@pytest.mark.parametrize(
    ("number", "packed", "value"),
    [
        (0, b"\xff", 255),
        (1, b"\xff", -1),
        (2, b"\xff\xff", 65535),
        (3, b"\xff\xff", -1),
        (4, b"\xff" * 4, 2**32 - 1),
        (5, b"\xff" * 4, -1),
        (6, struct.pack("<f", -0.25), -0.25),
        (7, b"\x01", True),
        (10, b"\xff" * 8, 2**64 - 1),
        (11, b"\xff" * 8, -1),
        (12, struct.pack("<d", 1e300), 1e300),
    ],
)
def test_scalar_types(write: Write, number: int, packed: bytes, value: int | float | bool) -> None:
    single = struct.pack("<I", number) + packed
    triple = struct.pack("<IIQ", 9, number, 3) + packed * 3
    metadata = read_gguf(write(encode_gguf({"one": single, "three": triple}))).metadata
    assert metadata["one"] == value
    assert metadata["three"] == (value,) * 3
    assert type(metadata["one"]) is type(value)


def test_tensors_are_placed_in_the_file(write: Write) -> None:
    path = write(VALID)
    tensors = read_gguf(path).tensors
    assert list(tensors) == ["a", "b"]
    a, b = tensors.values()
    assert (a.dims, a.type, a.num_bytes) == ((4, 2), TensorType.F32, 32)
    assert (b.dims, b.type, b.num_bytes) == ((32,), TensorType.Q8_0, 34)
    assert VALID[a.offset : a.offset + a.num_bytes] == TENSORS[0].data
    assert b.offset % 32 == 0


def test_another_alignment_is_followed(write: Write) -> None:
    data = encode_gguf({"general.alignment": 256}, TENSORS, alignment=256)
    file = read_gguf(write(data))
    assert [tensor.offset for tensor in file.tensors.values()] == [256, 512]
    assert file.alignment == 256


def test_version_2_is_read(write: Write) -> None:
    assert read_gguf(write(encode_gguf(METADATA, TENSORS, version=2))).version == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"PK\x03\x04" + bytes(60), "does not start with 'GGUF'"),
        (encode_gguf({}, version=1), "version 1 is not supported"),
        (encode_gguf({}, version=0x03000000), "big-endian"),
        (encode_gguf([("k", 1), ("k", 2)]), "'k' occurs twice"),
        (encode_gguf([("", 1)]), "metadata key 0 is empty"),
        (encode_gguf({"k" * 65_536: 1}), "at most 65535"),
        (encode_gguf({"k": "x" * (4 * 2**20 + 1)}), "4194305 bytes long; at most 4194304"),
        (encode_gguf({"k": struct.pack("<II", 13, 0)}), "'k' has the unknown type 13"),
        (encode_gguf({"k": struct.pack("<IIQ", 9, 13, 0)}), "'k' has the unknown type 13"),
        (encode_gguf({"k": struct.pack("<IIQ", 9, 9, 0)}), "array of arrays"),
        (encode_gguf({"k": struct.pack("<IB", 7, 2)}), "neither 0 nor 1"),
        (encode_gguf({"k": struct.pack("<IQ", 8, 2) + b"\xff\xff"}), "not valid UTF-8"),
        (encode_gguf({"k": struct.pack("<IIQQ", 9, 8, 1, 2) + b"\xff\xff"}), "not valid UTF-8"),
        (encode_gguf({"k": struct.pack("<IQ", 8, 2**63)}), "file ends within the value of 'k'"),
        (encode_gguf({"k": struct.pack("<IIQ", 9, 4, 2**63)}), "at most 4000000 over all arrays"),
        (encode_gguf({"k": struct.pack("<IIQ", 9, 4, 3_000_000)}), "file ends within"),
        (encode_gguf({"k": struct.pack("<IIQ", 9, 8, 3_000_000)}), "file ends within"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), "claims 1099511627776 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "claims 1099511627776 metadata keys"),
        (encode_gguf({"general.alignment": 0}), "general.alignment"),
        (encode_gguf({"general.alignment": 24}), "general.alignment"),
        (encode_gguf({"general.alignment": 2**31}), "general.alignment"),
        (encode_gguf({"general.alignment": "32"}), "general.alignment"),
        (encode_gguf({"general.alignment": True}), "general.alignment"),
    ],
)
def test_a_bad_header_is_refused(write: Write, data: bytes, reason: str) -> None:
    assert reason in refusal(write(data))


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (
            (TensorInput("a", (4,), F32, bytes(16)), TensorInput("a", (4,), F32, bytes(16))),
            "'a' occurs twice",
        ),
        ((TensorInput("n" * 65, (4,), F32, bytes(16)),), "at most 64"),
        ((TensorInput("a", (), F32, bytes(16)),), "0 dimensions"),
        ((TensorInput("a", (1, 1, 1, 1, 1), F32, bytes(16)),), "5 dimensions"),
        ((TensorInput("a", (4, 0), F32, bytes(16)),), "length 0"),
        ((TensorInput("a", (33,), Q8_0, bytes(64)),), "not a multiple of Q8_0's 32"),
        ((TensorInput("a", (288,), 12, bytes(162)),), "rows of 288 elements, not a multiple of Q4_K's 256"),
        ((TensorInput("a", (128, 2), 14, bytes(210)),), "rows of 128 elements, not a multiple of Q6_K's 256"),
        ((TensorInput("a", (256,), 10, bytes(84)),), "type Q2_K, which is not supported"),
        ((TensorInput("a", (256,), 99, bytes(144)),), "type 99, which is not supported"),
        ((TensorInput("a", (4,), F32, bytes(64), offset=4),), "not aligned to 32"),
        ((TensorInput("a", (4,), F32, bytes(16), offset=2**63),), "incomplete download?"),
        ((TensorInput("a", (2**63, 2**63, 2**63, 2**63), F32, bytes(16)),), "incomplete download?"),
        (
            (TensorInput("a", (16,), F32, bytes(64)), TensorInput("b", (4,), F32, bytes(16), offset=32)),
            "'a' and 'b' overlap",
        ),
    ],
)
def test_a_bad_tensor_is_refused(write: Write, tensors: tuple[TensorInput, ...], reason: str) -> None:
    assert reason in refusal(write(encode_gguf({}, tensors)))


def test_names_from_the_file_cannot_control_a_terminal(write: Write) -> None:
    assert "\x1b" not in refusal(write(encode_gguf([("\x1b[2J", 1), ("\x1b[2J", 1)])))


def test_a_header_beyond_the_limit_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "MAX_HEADER_BYTES", 64)
    assert "the header exceeds 64 bytes" in refusal(write(VALID))


def test_arrays_share_one_limit(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "MAX_ARRAY_ELEMENTS", 5)
    assert "'y' has 3 elements" in refusal(write(encode_gguf({"x": [1, 2, 3], "y": [4, 5, 6]})))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "No such file" in refusal(tmp_path / "absent.gguf")
    assert "not a regular file" in refusal(tmp_path)
    assert "not a regular file" in refusal(pipe)
    assert "cannot be read" in refusal(tmp_path / "null\x00byte")


def test_typed_access(write: Write) -> None:
    file = read_gguf(write(VALID))
    assert file.text("general.architecture") == "llama"
    assert file.integer("number") == 7
    assert file.number("number") == 7.0
    assert file.number("ratio") == 0.5
    assert file.flag("yes") is True
    assert file.texts("words")[0] == "Ġthe"
    assert file.integers("codes") == (1, -2, 3)
    assert file.integer("absent", 3) == 3
    for wrong in (
        lambda: file.text("absent"),
        lambda: file.text("number"),
        lambda: file.integer("yes"),
        lambda: file.number("general.architecture"),
        lambda: file.texts("codes"),
        lambda: file.integers("number"),
        lambda: file.integers("absent"),
    ):
        with pytest.raises(ModelFileError, match="metadata key"):
            wrong()


def test_every_truncation_is_refused(write: Write) -> None:
    path = write(VALID)
    end = max(tensor.offset + tensor.num_bytes for tensor in read_gguf(path).tensors.values())
    os.truncate(path, end)
    read_gguf(path)  # the padding after the last tensor may be missing
    for length in reversed(range(end)):
        os.truncate(path, length)
        refusal(path)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(VALID) - 1), st.sampled_from([0, 1, 8, 9, 127, 128, 255]) | st.integers(0, 255)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_damaged_bytes_never_raise_anything_else(write: Write, edits: list[tuple[int, int]]) -> None:
    damaged = bytearray(VALID)
    for position, byte in edits:
        damaged[position] = byte
    path = write(bytes(damaged))
    try:
        file = read_gguf(path)
    except ModelFileError:
        refusal(path)
    else:
        assert all(tensor.offset + tensor.num_bytes <= len(VALID) for tensor in file.tensors.values())
