import struct
from pathlib import Path

import pytest

from headway.core.errors import ModelFileError
from headway.core.plan import TensorType
from headway.models import gguf_shards
from headway.models.gguf_shards import read_gguf_model
from support.gguf_writer import MetadataInput, TensorInput, encode_gguf, encode_gguf_shards

F32 = int(TensorType.F32)
TENSORS = tuple(
    TensorInput(name, (4,), F32, struct.pack("<4f", *[index] * 4)) for index, name in enumerate("abcde")
)
METADATA: dict[str, MetadataInput] = {"general.architecture": "llama", "words": ["a", "b"]}
SHARDS = encode_gguf_shards(METADATA, TENSORS, 3)


def name_of(number: int, count: int = 3) -> str:
    return f"tiny-{number:05}-of-{count:05}.gguf"


def write(folder: Path, shards: tuple[bytes, ...] = SHARDS) -> Path:
    """Write the shards and return the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(shards, 1):
        (folder / name_of(number, len(shards))).write_bytes(data)
    return folder / name_of(1, len(shards))


def split_keys(number: int, count: int, total: int) -> dict[str, MetadataInput]:
    return {"split.no": number, "split.count": count, "split.tensors.count": total}


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_gguf_model(path)
    message = caught.value.message
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_a_single_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(encode_gguf(METADATA, TENSORS))
    file = read_gguf_model(path)
    assert file.files == (path,)
    assert {tensor.file for tensor in file.tensors.values()} == {0}


def test_a_single_shard_is_read_under_any_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(encode_gguf_shards(METADATA, TENSORS, 1)[0])
    assert list(read_gguf_model(path).tensors) == list("abcde")


def test_shards_are_one_model(tmp_path: Path) -> None:
    path = write(tmp_path)
    file = read_gguf_model(path)
    assert file.path == path
    assert file.files == tuple(tmp_path / name_of(number) for number in (1, 2, 3))
    assert file.texts("words") == ("a", "b")
    assert {name: tensor.file for name, tensor in file.tensors.items()} == {
        "a": 0,
        "b": 0,
        "c": 1,
        "d": 1,
        "e": 2,
    }
    for index, tensor in enumerate(file.tensors.values()):
        data = file.files[tensor.file].read_bytes()[tensor.offset : tensor.offset + tensor.num_bytes]
        assert struct.unpack("<4f", data) == (index,) * 4


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / name_of(2)).unlink()
    assert f"{name_of(2)}: shard 2 of 3 cannot be read (No such file" in refusal(path)


def test_another_shard_than_the_first_says_which_to_name(tmp_path: Path) -> None:
    write(tmp_path)
    assert f"shard 3 of 3; name the first one, {name_of(1)}" in refusal(tmp_path / name_of(3))


def test_shards_must_keep_their_names(tmp_path: Path) -> None:
    path = write(tmp_path)
    for name in ("model.gguf", "tiny-00001-of-00004.gguf", "tiny-1-of-3.gguf"):
        renamed = tmp_path / name
        renamed.write_bytes(path.read_bytes())
        assert "is not named so (NAME-00001-of-00003.gguf)" in refusal(renamed)
    write(tmp_path, (SHARDS[1], SHARDS[0], SHARDS[2]))
    assert f"name the first one, {name_of(1)}" in refusal(path)
    assert "the first of 3 shards but has another one's name" in refusal(tmp_path / name_of(2))


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (encode_gguf({}, TENSORS[2:4]), "split.count is missing"),
        (encode_gguf(split_keys(1, 4, 5), TENSORS[2:4]), f"a shard of another model than {name_of(1)}"),
        (encode_gguf(split_keys(1, 3, 6), TENSORS[2:4]), f"a shard of another model than {name_of(1)}"),
        (encode_gguf(split_keys(2, 3, 5), TENSORS[2:4]), "by its contents it is shard 3, not 2, of 3"),
        (encode_gguf(split_keys(1, 3, 5), TENSORS[1:3]), "its tensor 'b' is in an earlier shard too"),
        (encode_gguf(split_keys(1, 3, 5), TENSORS[2:3]), "its 3 shards hold 4 tensors instead of 5"),
        (SHARDS[1][:100], "incomplete download?"),
        (b"", "the file is empty"),
    ],
)
def test_a_shard_that_does_not_fit_is_refused(tmp_path: Path, second: bytes, reason: str) -> None:
    assert reason in refusal(write(tmp_path, (SHARDS[0], second, SHARDS[2])))


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"split.count": 2**31}, "claims 2147483648 shards; at most 1024"),
        ({"split.count": "3"}, "split.count is not of type int"),
        ({"split.count": 3, "split.tensors.count": 5}, "split.no is missing"),
        ({"split.count": 3, "split.no": 0}, "split.tensors.count is missing"),
    ],
)
def test_a_first_shard_that_lies_is_refused(
    tmp_path: Path, keys: dict[str, MetadataInput], reason: str
) -> None:
    assert reason in refusal(write(tmp_path, (encode_gguf(keys, TENSORS), *SHARDS[1:])))


def test_all_shards_share_the_limit_of_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_shards, "MAX_TENSORS", 3)
    assert "more than 3 tensors" in refusal(write(tmp_path))


def test_links_of_a_hub_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "0"
    write(blobs)
    snapshot.mkdir(parents=True)
    for number in (1, 2, 3):
        (snapshot / name_of(number)).symlink_to(f"../../blobs/{name_of(number)}")
    assert len(read_gguf_model(snapshot / name_of(1)).tensors) == 5


def test_links_to_where_the_first_shard_lies_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "disk")
    (tmp_path / "links").mkdir()
    for number in (1, 2, 3):
        (tmp_path / "links" / name_of(number)).symlink_to(tmp_path / "disk" / name_of(number))
    assert len(read_gguf_model(tmp_path / "links" / name_of(1)).tensors) == 5


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model")
    secret = tmp_path / "elsewhere.gguf"
    second = tmp_path / "model" / name_of(2)
    second.rename(secret)
    second.symlink_to(secret)
    assert "symbolic link out of the model's folder" in refusal(path)
    second.unlink()
    second.symlink_to(second.name)  # in a circle
    assert "cannot be read" in refusal(path)


def test_names_of_shards_come_from_the_users_path(tmp_path: Path) -> None:
    folder = tmp_path / "a-00001-of-00003.gguf"  # a folder that is named like a shard changes nothing
    assert read_gguf_model(write(folder)).files[1] == folder / name_of(2)
