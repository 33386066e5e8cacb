from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from headway.core.errors import ModelFileError
from headway.core.plan import LayerShape, ModelPlan, TensorType
from headway.models.architectures import open_plan
from headway.models.gguf import read_gguf
from headway.models.gguf_file import BLOCK_LAYOUT, GgufFile, GgufTensor
from headway.models.gguf_plan import plan_gguf
from support.ggml_blocks import decode
from support.gguf_writer import MetadataInput
from support.tiny_gguf import write_tiny_gguf


def plan_with(path: Path, extra_metadata: Mapping[str, MetadataInput]) -> ModelPlan:
    return open_plan(write_tiny_gguf(path, extra_metadata=extra_metadata).path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny.gguf"


def test_the_shape_is_read(path: Path) -> None:
    write_tiny_gguf(path, layers=3, rope_theta=50_000.0)
    plan = open_plan(path, "digest")
    shape = plan.shape
    assert (plan.path, plan.file_sha256, shape.architecture) == (path, "digest", "llama")
    assert (shape.vocab_size, shape.max_context, shape.hidden_size, shape.num_layers) == (320, 512, 64, 3)
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.ffn_size) == (4, 2, 16, 128)
    assert (plan.files, shape.layers) == ((path,), (LayerShape(),) * 3)
    (rope,) = shape.ropes
    assert (rope.dim, rope.interleaved, rope.scale) == (16, True, 1.0)
    assert rope.frequencies == pytest.approx([50_000.0 ** (-i / 8) for i in range(8)])
    assert list(rope.frequencies) == [float(np.float32(value)) for value in rope.frequencies]
    assert shape.norm_epsilon == pytest.approx(1e-5)
    assert shape.tied_embeddings


@pytest.mark.parametrize("kind", list(TensorType))
def test_every_tensor_lies_where_the_plan_says(path: Path, kind: TensorType) -> None:
    hidden, heads = (256, 16) if BLOCK_LAYOUT[kind][0] == 256 else (64, 4)
    model = write_tiny_gguf(
        path, tensor_type=kind, tied=False, rope_factors=True, hidden=hidden, heads=heads, ffn=256
    )
    file, plan = read_gguf(path), open_plan(path)
    data = path.read_bytes()
    assert not plan.shape.tied_embeddings
    assert len(plan.tensors) == len(file.tensors) - 1 == 1 + 2 * 9 + 1 + 1
    by_offset = {tensor.offset: tensor.name for tensor in file.tensors.values()}
    for reference in plan.tensors:
        weights = model.weights[by_offset[reference.offset]]
        raw = data[reference.offset : reference.offset + reference.num_bytes]
        stored = decode(raw, reference.type, (reference.rows, reference.columns))
        assert np.array_equal(stored, weights.reshape(reference.rows, reference.columns))


def test_roles_and_layers(path: Path) -> None:
    write_tiny_gguf(path, tied=False, rope_factors=True)
    plan = open_plan(path)
    outside = {reference.role for reference in plan.tensors if reference.layer is None}
    assert outside == {"token_embedding", "output_norm", "output"}
    for layer in range(2):
        shapes = {ref.role: (ref.rows, ref.columns) for ref in plan.tensors if ref.layer == layer}
        assert shapes == {
            "attention_norm": (1, 64),
            "query": (64, 64),
            "key": (32, 64),
            "value": (32, 64),
            "attention_output": (64, 64),
            "ffn_norm": (1, 64),
            "ffn_gate": (128, 64),
            "ffn_up": (128, 64),
            "ffn_down": (64, 128),
        }


def test_rotation_factors_divide_the_frequencies(path: Path) -> None:
    plain = open_plan(write_tiny_gguf(path).path).shape.ropes[0].frequencies
    divided = open_plan(write_tiny_gguf(path, rope_factors=True).path).shape.ropes[0].frequencies
    assert divided == pytest.approx(
        [value / factor for value, factor in zip(plain, range(1, 9), strict=True)]
    )


@pytest.mark.parametrize("factor", [0.0, float("nan"), 1e-44])
def test_a_rotation_factor_that_divides_no_frequency_is_refused(path: Path, factor: float) -> None:
    write_tiny_gguf(path, rope_factors=True)
    place = read_gguf(path).tensors["rope_freqs.weight"].offset
    data = bytearray(path.read_bytes())
    data[place : place + 4] = np.float32(factor).tobytes()
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight holds a factor that is out of range"):
        open_plan(path)


def test_optional_keys_have_their_defaults(path: Path) -> None:
    write_tiny_gguf(path, kv_heads=4)
    file = read_gguf(path)
    optional = (
        "llama.attention.head_count_kv",
        "llama.attention.key_length",
        "llama.attention.value_length",
        "llama.rope.dimension_count",
        "llama.rope.freq_base",
        "llama.vocab_size",
    )
    assert plan_gguf(without_keys(file, *optional)) == plan_gguf(file)


@pytest.mark.parametrize(
    "extra_metadata",
    [
        {"llama.rope.scaling.type": "none"},
        {"llama.rope.scaling.factor": 1.0},
        {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0},
        {"llama.rope.scaling.factor": 0.0},
        {"llama.attention.sliding_window": 512},
        {"llama.expert_count": 0},
        {"llama.tensor_data_layout": "Meta AI original pth"},
        {"other.key": 1},
    ],
)
def test_keys_without_effect_are_accepted(path: Path, extra_metadata: Mapping[str, MetadataInput]) -> None:
    plan_with(path, extra_metadata)


@pytest.mark.parametrize(
    ("extra_metadata", "reason"),
    [
        (
            {"general.architecture": "mamba"},
            r"architecture 'mamba' is not supported \(supported: llama, qwen2, qwen3, qwen3moe, phi3, gemma2, gemma3\)",
        ),
        ({"general.architecture": "mistral"}, "architecture 'mistral' is not supported"),
        ({"llama.rope.scaling.type": "ntk"}, "rope.scaling.type is 'ntk'"),
        ({"llama.rope.scaling.type": "longrope"}, "longrope is supported with rope_factors_long and"),
        ({"llama.rope.scaling.factor": -2.0}, "rope.scaling.factor is -2.0, out of range"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.attn_factor": 1.5},
            "yarn with an attn_factor",
        ),
        ({"llama.rope.scaling.yarn_attn_factor": 1.0}, r"only a file without it is"),
        ({"llama.rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor is 0.5"),
        ({"llama.rope.freq_base": 1.0}, "above 1"),
        ({"llama.rope.freq_base_swa": 5000.0}, "differs from rope.freq_base"),
        ({"llama.block_count": 2_000_000_000}, "block_count is 2000000000, out of range"),
        ({"llama.attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        ({"llama.expert_count": 8}, "expert_count is 8"),
        ({"llama.attention.sliding_window": 128}, "attention.sliding_window"),
        ({"llama.attention.causal": False}, "attention.causal is False"),
        ({"llama.attention.head_count": 0}, "head_count is 0, out of range"),
        ({"llama.attention.head_count": [4, 4]}, "differs from layer to layer"),
        ({"llama.attention.head_count": "four"}, "not of type int"),
        ({"llama.attention.head_count_kv": 3}, "4 heads cannot share 3"),
        ({"llama.attention.value_length": 8}, "keys of length 16 with values of length 8"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "must be positive"),
        ({"llama.rope.freq_base": float("nan")}, "must be above 1"),
        ({"llama.rope.dimension_count": 7}, "odd"),
        ({"llama.rope.dimension_count": 18}, "exceeds the head's 16"),
        ({"llama.vocab_size": 321}, "llama.vocab_size"),
        ({"tokenizer.ggml.tokens": ["a"]}, "tokenizer has 1 tokens"),
        ({"llama.embedding_length": 96}, "token_embd.weight has shape"),
        ({"llama.feed_forward_length": 64}, "ffn_gate.weight has shape"),
        ({"llama.block_count": 3}, "blk.2.attn_norm.weight is missing"),
        ({"llama.block_count": 1}, "'blk.1.attn_norm.weight' is not supported"),
    ],
)
def test_what_cannot_be_computed_is_refused(
    path: Path, extra_metadata: Mapping[str, MetadataInput], reason: str
) -> None:
    with pytest.raises(ModelFileError, match=reason) as caught:
        plan_with(path, extra_metadata)
    assert caught.value.message.startswith(f"{path}: ")


@pytest.mark.parametrize("key", ["general.architecture", "llama.block_count", "llama.context_length"])
def test_a_missing_key_is_named(path: Path, key: str) -> None:
    write_tiny_gguf(path)
    with pytest.raises(ModelFileError, match=f"{key} is missing"):
        plan_gguf(without_keys(read_gguf(path), key))


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.attn_output.bias",
        "blk.0.ffn_gate_inp.weight",
        "blk.0.attn_q_norm.weight",
        "blk.2.attn_q.weight",
    ],
)
def test_tensors_that_would_change_the_output_are_refused(path: Path, name: str) -> None:
    write_tiny_gguf(path)
    file = read_gguf(path)
    extra = GgufTensor(name, (64,), TensorType.F32, 0, 256)
    with pytest.raises(ModelFileError, match=f"tensor '{name}' is not supported"):
        plan_gguf(with_tensors(file, {**file.tensors, name: extra}))


def test_a_quantised_norm_is_refused(path: Path) -> None:
    write_tiny_gguf(path)
    file = read_gguf(path)
    norm = GgufTensor("output_norm.weight", (64,), TensorType.Q8_0, 0, 68)
    with pytest.raises(ModelFileError, match=r"output_norm\.weight is a vector of type Q8_0"):
        plan_gguf(with_tensors(file, {**file.tensors, norm.name: norm}))


@pytest.mark.parametrize("dims", [(64,), (64, 320, 1)])
def test_an_embedding_that_is_no_matrix_is_refused(path: Path, dims: tuple[int, ...]) -> None:
    write_tiny_gguf(path)
    file = read_gguf(path)
    embedding = GgufTensor("token_embd.weight", dims, TensorType.F32, 0, 256)
    with pytest.raises(ModelFileError, match=r"token_embd\.weight has"):
        plan_gguf(with_tensors(file, {**file.tensors, embedding.name: embedding}))


def test_a_tiny_file_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    first, second, other = (
        write_tiny_gguf(tmp_path / f"{index}.gguf", seed=seed).path.read_bytes()
        for index, seed in enumerate([1, 1, 2])
    )
    assert first == second
    assert first != other


def without_keys(file: GgufFile, *keys: str) -> GgufFile:
    metadata = {key: value for key, value in file.metadata.items() if key not in keys}
    return GgufFile(file.path, file.version, file.alignment, metadata, file.tensors)


def with_tensors(file: GgufFile, tensors: Mapping[str, GgufTensor]) -> GgufFile:
    return GgufFile(file.path, file.version, file.alignment, file.metadata, tensors)
