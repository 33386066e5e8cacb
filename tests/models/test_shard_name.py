import pytest

from headway.models.shard_name import ShardName, parse_shard_name


@pytest.mark.parametrize(
    "name", ["m-00002-of-00003.gguf", "a-b.Q8_0-00001-of-99999.GGUF", "m\n-00000-of-00000.gguf"]
)
def test_a_shards_name_is_taken_apart_and_put_together(name: str) -> None:
    shard = parse_shard_name(name)
    assert shard is not None
    assert shard.of(shard.number) == name


def test_other_shards_are_named_alike() -> None:
    shard = parse_shard_name("m.Q4_0-00002-of-00003.gguf")
    assert shard == ShardName(stem="m.Q4_0", number=2, count=3, suffix=".gguf")
    assert shard.of(3) == "m.Q4_0-00003-of-00003.gguf"


@pytest.mark.parametrize(
    "name", ["m.gguf", "-00001-of-00002.gguf", "m-1-of-2.gguf", "m-00001-of-00002.safetensors"]
)
def test_other_names_are_no_shards(name: str) -> None:
    assert parse_shard_name(name) is None
