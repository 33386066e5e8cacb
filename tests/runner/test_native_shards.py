"""A model in shards computes what it computes in one file."""

from pathlib import Path

import pytest

from headway.core.config import EngineConfig
from headway.core.plan import ModelPlan
from headway.models.architectures import open_plan
from headway.models.gguf import read_gguf
from headway.runner.native import load_runner
from support.gguf_writer import MetadataInput, TensorInput, encode_gguf_shards
from support.tiny_gguf import write_tiny_gguf
from support.tiny_llama import Part, make_step

pytestmark = pytest.mark.native

CONFIG = EngineConfig(model="tiny", weights="bf16", threads=1, kv_bytes=1 << 20)
LLAMA: dict[str, MetadataInput] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def logits(plan: ModelPlan) -> bytes:
    tokens = [(index * 37 + 11) % plan.shape.vocab_size for index in range(40)]
    return load_runner(plan, CONFIG).forward(make_step([Part(tokens, 0, range(3), range(40))]))


def test_shards_give_the_bits_of_one_file(tmp_path: Path) -> None:
    whole = write_tiny_gguf(tmp_path / "tiny.gguf").path
    data = whole.read_bytes()
    tensors = [
        TensorInput(
            tensor.name, tensor.dims, tensor.type, data[tensor.offset : tensor.offset + tensor.num_bytes]
        )
        for tensor in read_gguf(whole).tensors.values()
    ]
    for number, shard in enumerate(encode_gguf_shards(LLAMA, tensors, 3), 1):
        (tmp_path / f"tiny-{number:05}-of-00003.gguf").write_bytes(shard)
    plan = open_plan(tmp_path / "tiny-00001-of-00003.gguf")
    assert {tensor.file for tensor in plan.tensors} == {0, 1, 2}
    assert logits(plan) == logits(open_plan(whole))
