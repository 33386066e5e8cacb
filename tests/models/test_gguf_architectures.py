"""What GGUF headers say besides what all architectures have: windows, rotations, scales, fused and stacked tensors.

Headers are made up; no file is read but for tensors of factors. That plans compute what `transformers` computes is shown
in tests/accuracy/test_plans.py.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from headway.core.errors import ModelFileError
from headway.core.plan import ModelPlan, ModelShape, TensorType
from headway.models.architecture_table import by_gguf_name
from headway.models.gguf_file import BLOCK_LAYOUT, GgufFile, GgufTensor, MetadataValue
from headway.models.gguf_plan import _UNDERSTOOD, _UNDERSTOOD_EXPERTS, plan_gguf
from headway.models.rope import llama3_frequencies, plain_frequencies, yarn_frequencies

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, EXPERTS = 64, 4, 2, 16, 128, 10, 3


def tensor(
    name: str, *shape: int, kind: TensorType = TensorType.F32, offset: int = 0, file: int = 0
) -> GgufTensor:
    elements, num_bytes = BLOCK_LAYOUT[kind]
    return GgufTensor(name, shape[::-1], kind, offset, math.prod(shape) // elements * num_bytes, file)


def header(
    architecture: str,
    keys: Mapping[str, MetadataValue] | None = None,
    *,
    layers: int = 2,
    path: Path = Path("model.gguf"),
    without: tuple[str, ...] = (),
    extra: tuple[GgufTensor, ...] = (),
) -> GgufFile:
    """Return the header of a model, with keys (without the architecture's name) added or replaced, tensors added."""
    row = by_gguf_name(architecture)
    assert row is not None
    values: dict[str, MetadataValue] = {
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.value_length": HEAD_DIM,
        "block_count": layers,
        "context_length": 1024,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "rope.freq_base": 10_000.0,
    }
    if row.gguf_window is None:
        values["attention.sliding_window"] = 0
    if row.experts:
        values |= {"expert_count": EXPERTS, "expert_feed_forward_length": FFN, "expert_used_count": 2}
    metadata = {f"{architecture}.{key}": value for key, value in {**values, **(keys or {})}.items()}
    metadata["general.architecture"] = architecture
    names = {
        "attn_norm": (HIDDEN,),
        "attn_output": (HIDDEN, HEADS * HEAD_DIM),
        "ffn_norm": (HIDDEN,),
    }
    if row.fused:
        names |= {"attn_qkv": ((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN), "ffn_up": (2 * FFN, HIDDEN)}
    else:
        names |= {"attn_q": (HEADS * HEAD_DIM, HIDDEN), "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN)}
        names |= {"attn_v": (KV_HEADS * HEAD_DIM, HIDDEN)}
        names |= {"ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN)}
    names["ffn_down"] = (HIDDEN, FFN)
    if row.experts:
        names = {
            name: shape for name, shape in names.items() if not name.startswith(("ffn_g", "ffn_u", "ffn_d"))
        }
        names |= {"ffn_gate_inp": (EXPERTS, HIDDEN), "ffn_gate_exps": (EXPERTS, FFN, HIDDEN)}
        names |= {"ffn_up_exps": (EXPERTS, FFN, HIDDEN), "ffn_down_exps": (EXPERTS, HIDDEN, FFN)}
    if row.qk_norm:
        names |= {"attn_q_norm": (HEAD_DIM,), "attn_k_norm": (HEAD_DIM,)}
    if row.post_norms:
        names |= {"post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,)}
    placed = [tensor("token_embd.weight", VOCAB, HIDDEN), tensor("output_norm.weight", HIDDEN)]
    for layer in range(layers):
        block = f"blk.{layer}."
        placed += [tensor(f"{block}{name}.weight", *shape) for name, shape in names.items()]
        if row.qkv_bias:
            placed += [tensor(f"{block}attn_q.bias", HEADS * HEAD_DIM)]
            placed += [tensor(f"{block}attn_{part}.bias", KV_HEADS * HEAD_DIM) for part in "kv"]
    tensors = {item.name: item for item in (*placed, *extra) if item.name not in without}
    return GgufFile(path, 3, 32, MappingProxyType(metadata), MappingProxyType(tensors))


def shape_of(
    architecture: str, keys: Mapping[str, MetadataValue] | None = None, *, layers: int = 2
) -> ModelShape:
    return plan_gguf(header(architecture, keys, layers=layers)).shape


def refusal(file: GgufFile) -> str:
    with pytest.raises(ModelFileError) as caught:
        plan_gguf(file)
    assert caught.value.message.startswith("model.gguf: ")
    return caught.value.message


ALL = ["llama", "qwen2", "qwen3", "qwen3moe", "phi3", "gemma2", "gemma3"]


@pytest.mark.parametrize("architecture", ALL)
def test_every_architecture_is_planned(architecture: str) -> None:
    row = by_gguf_name(architecture)
    assert row is not None
    shape = shape_of(architecture)
    assert shape.architecture == architecture
    assert (shape.qkv_bias, shape.qk_norm, shape.post_norms) == (row.qkv_bias, row.qk_norm, row.post_norms)
    assert shape.activation == ("gelu_tanh" if architecture.startswith("gemma") else "silu")
    assert shape.embedding_scale == (8.0 if architecture.startswith("gemma") else 1.0)
    assert shape.ropes[0].interleaved == (architecture == "llama")
    assert shape.tied_embeddings


@pytest.mark.parametrize(
    ("architecture", "keys", "windows"),
    [
        ("llama", {}, [None] * 8),
        ("llama", {"attention.sliding_window": 0}, [None] * 8),
        ("llama", {"attention.sliding_window": 1024}, [None] * 8),
        (
            "llama",
            {"attention.sliding_window": 9, "attention.sliding_window_pattern": 4},
            [9, 9, 9, None, 9, 9, 9, None],
        ),
        ("qwen2", {"attention.sliding_window": 32_768}, [None] * 8),
        ("phi3", {"attention.sliding_window": 0}, [None] * 8),
        ("phi3", {"attention.sliding_window": 47}, [47] * 8),
        ("gemma2", {}, [4096, None] * 4),
        ("gemma2", {"attention.sliding_window": 5}, [5, None] * 4),
        ("gemma3", {}, [None] * 8),
        ("gemma3", {"attention.sliding_window": 5}, [5, 5, 5, 5, 5, None, 5, 5]),
        ("gemma3", {"attention.sliding_window": 5, "attention.sliding_window_pattern": 1}, [None] * 8),
        ("gemma3", {"attention.sliding_window": 5, "attention.sliding_window_pattern": 0}, [5] * 8),
        (
            "gemma3",
            {
                "attention.sliding_window": 5,
                "attention.sliding_window_pattern": (True, False, False, True, True, True, True, False),
            },
            [5, None, None, 5, 5, 5, 5, None],
        ),
    ],
)
def test_windows(architecture: str, keys: Mapping[str, MetadataValue], windows: list[int | None]) -> None:
    shape = shape_of(architecture, keys, layers=8)
    assert [layer.window for layer in shape.layers] == windows
    local = architecture == "gemma3" and any(windows)
    assert [layer.rope for layer in shape.layers] == [int(local and window is not None) for window in windows]
    assert len(shape.ropes) == 1 + local


@pytest.mark.parametrize(
    ("layers", "context", "window"), [(32, 4096, 2047), (40, 4096, 2047), (32, 131_072, None)]
)
def test_windows_of_phi3_files_that_are_older_than_the_key(
    layers: int, context: int, window: int | None
) -> None:
    file = header("phi3", {"context_length": context}, layers=layers)
    metadata = {key: value for key, value in file.metadata.items() if "sliding_window" not in key}
    old = GgufFile(file.path, 3, 32, MappingProxyType(metadata), file.tensors)
    assert {layer.window for layer in plan_gguf(old).shape.layers} == {window}
    other = {**metadata, "phi3.context_length": 16_384}
    assert "phi3.attention.sliding_window is missing" in refusal(
        GgufFile(file.path, 3, 32, MappingProxyType(other), file.tensors)
    )


@pytest.mark.parametrize(
    ("architecture", "keys", "reason"),
    [
        ("llama", {"attention.sliding_window": 128}, "the file does not say in which layers"),
        ("qwen3", {"attention.sliding_window": 128}, "the file does not say in which layers"),
        ("phi3", {"attention.sliding_window": -1}, "attention.sliding_window is -1, out of range"),
        ("phi3", {"attention.sliding_window": 2**31}, "attention.sliding_window is 2147483648, out of range"),
        ("phi3", {"attention.sliding_window": (1, 2)}, "differs from layer to layer"),
        (
            "gemma3",
            {"attention.sliding_window": 5, "attention.sliding_window_pattern": (True,)},
            "does not have one bool for each of 2 layers",
        ),
        (
            "gemma3",
            {"attention.sliding_window": 5, "attention.sliding_window_pattern": (1, 0)},
            "does not have one bool for each of 2 layers",
        ),
        (
            "gemma3",
            {"attention.sliding_window": 5, "attention.sliding_window_pattern": -2},
            "attention.sliding_window_pattern is -2, out of range",
        ),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        ("gemma2", {"attn_logit_softcapping": -1.0}, "must be positive"),
        ("qwen3moe", {"expert_used_count": 4}, "expert_used_count is 4, out of range"),
        ("qwen3moe", {"expert_count": 4}, "ffn_gate_inp.weight has shape"),
        ("qwen3moe", {"expert_gating_func": 2}, "expert_gating_func is 2"),
        ("qwen3moe", {"expert_shared_count": 1}, "expert_shared_count is 1"),
        ("llama", {"attention.scale": -1.0}, "attention.scale is -1.0, but must be positive"),
        ("llama", {"rope.scaling.type": "longrope"}, "longrope is supported with"),
        ("llama", {"rope.scaling.factor": math.inf}, "rope.scaling.factor is inf, out of range"),
        ("llama", {"rope.scaling.attn_factor": 0.0}, "rope.scaling.attn_factor is 0.0, but must be positive"),
    ],
)
def test_what_cannot_be_computed_is_refused(
    architecture: str, keys: Mapping[str, MetadataValue], reason: str
) -> None:
    assert reason in refusal(header(architecture, keys))


def test_soft_caps_have_their_defaults_in_gemma2_alone() -> None:
    gemma2, gemma3 = shape_of("gemma2"), shape_of("gemma3")
    assert (gemma2.attention_softcap, gemma2.logit_softcap) == (50.0, 30.0)
    assert (gemma3.attention_softcap, gemma3.logit_softcap) == (None, None)
    off = shape_of("gemma2", {"attn_logit_softcapping": 0.0, "final_logit_softcapping": 0.0})
    assert (off.attention_softcap, off.logit_softcap) == (None, None)
    assert shape_of("gemma3", {"final_logit_softcapping": 12.0}).logit_softcap == 12.0


def test_the_largest_gemmas_scale_by_the_hidden_size() -> None:
    for architecture, layers in (("gemma2", 46), ("gemma3", 62)):
        keys = {"attention.head_count_kv": 2, "attention.head_count": 4}
        assert shape_of(architecture, keys, layers=layers).attention_scale == pytest.approx(16**-0.5)
        assert shape_of(architecture, keys, layers=layers - 1).attention_scale is None
    assert shape_of("llama", layers=46).attention_scale is None
    assert shape_of("llama", {"attention.scale": 0.5}).attention_scale == 0.5
    assert shape_of("llama", {"attention.scale": 0.0}).attention_scale is None


def test_gemma3_needs_its_base_and_scales_global_layers_alone() -> None:
    file = header("gemma3", {"attention.sliding_window": 5})
    metadata = {key: value for key, value in file.metadata.items() if key != "gemma3.rope.freq_base"}
    assert "rope.freq_base is missing" in refusal(
        GgufFile(file.path, 3, 32, MappingProxyType(metadata), file.tensors)
    )
    keys: Mapping[str, MetadataValue] = {
        "attention.sliding_window": 5,
        "rope.freq_base": 1e6,
        "rope.scaling.factor": 8.0,
        "rope.scaling.type": "linear",
    }
    whole, local = shape_of("gemma3", keys).ropes
    assert whole.frequencies == pytest.approx([value / 8 for value in plain_frequencies(HEAD_DIM, 1e6)])
    assert local.frequencies == plain_frequencies(HEAD_DIM, 10_000.0)
    _, other = shape_of("gemma3", {**keys, "rope.freq_base_swa": 5_000.0}).ropes
    assert other.frequencies == plain_frequencies(HEAD_DIM, 5_000.0)


@pytest.mark.parametrize(
    ("keys", "divisor"),
    [
        ({"rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scale_linear": 4.0}, 4.0),
        ({"rope.scale_linear": 2.0, "rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 0.25}, 0.25),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, 1.0),
        ({"rope.scaling.type": "linear"}, 1.0),
    ],
)
def test_linear_scaling(keys: Mapping[str, MetadataValue], divisor: float) -> None:
    plain = plain_frequencies(HEAD_DIM, 10_000.0)
    assert shape_of("qwen3", keys).ropes[0].frequencies == pytest.approx([value / divisor for value in plain])


def test_yarn_scaling() -> None:
    keys: Mapping[str, MetadataValue] = {
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 256,
        "rope.scaling.type": "yarn",
        "rope.scaling.yarn_beta_fast": 8.0,
        "rope.scaling.yarn_beta_slow": 2.0,
        "rope.scaling.yarn_ext_factor": 1.0,
    }
    (rope,) = shape_of("qwen2", keys).ropes
    assert rope.scale == pytest.approx(0.1 * math.log(4) + 1)
    assert rope.frequencies == yarn_frequencies(
        HEAD_DIM, 10_000.0, factor=4.0, original_context=256, beta_fast=8.0, beta_slow=2.0
    )
    without = {key: value for key, value in keys.items() if "original" not in key and "beta" not in key}
    assert shape_of("qwen2", without).ropes[0].frequencies == yarn_frequencies(
        HEAD_DIM, 10_000.0, factor=4.0, original_context=1024
    )


def factors(path: Path, name: str, values: list[float]) -> GgufTensor:
    """Append a tensor of factors to the file at `path`."""
    with path.open("ab") as stream:
        offset = stream.tell()
        stream.write(np.array(values, np.float32).tobytes())
    return tensor(name, len(values), offset=offset)


def test_llama3_comes_as_factors(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    plain = plain_frequencies(HEAD_DIM, 500_000.0)
    scaled = llama3_frequencies(
        HEAD_DIM, 500_000.0, factor=8, low_freq_factor=1, high_freq_factor=4, original_context=64
    )
    found = factors(
        path, "rope_freqs.weight", [whole / part for whole, part in zip(plain, scaled, strict=True)]
    )
    keys = {"rope.freq_base": 500_000.0}
    shape = plan_gguf(header("llama", keys, path=path, extra=(found,))).shape
    assert shape.ropes[0].frequencies == pytest.approx(scaled, rel=2**-22)
    assert "rope_freqs.weight is not supported in qwen2" in refusal(header("qwen2", extra=(found,)))


@pytest.mark.parametrize("architecture", ["phi3", "llama"])
def test_longrope_comes_as_factors(tmp_path: Path, architecture: str) -> None:
    path = tmp_path / "model.gguf"
    short, long = [1.0 + i / 8 for i in range(8)], [2.0 + i for i in range(8)]
    extra = (
        factors(path, "rope_factors_short.weight", short),
        factors(path, "rope_factors_long.weight", long),
    )
    keys: dict[str, MetadataValue] = {
        "rope.scaling.attn_factor": 1.25,
        "rope.scaling.original_context_length": 256,
    }
    if architecture == "llama":
        keys["rope.scaling.type"] = "longrope"  # phi3 has the factors alone
    shape = plan_gguf(header(architecture, keys, path=path, extra=extra)).shape
    plain = plain_frequencies(HEAD_DIM, 10_000.0)
    (rope,), beyond = shape.ropes, shape.long_context
    assert beyond is not None
    assert beyond.original_context == 256
    for found, divisors in ((rope, short), (beyond.ropes[0], long)):
        assert found.scale == 1.25
        assert found.frequencies == pytest.approx(
            [frequency / divisor for frequency, divisor in zip(plain, divisors, strict=True)], rel=2**-22
        )
    whole = plan_gguf(
        header(architecture, {**keys, "rope.scaling.original_context_length": 1024}, path=path, extra=extra)
    ).shape
    assert whole.long_context is None
    del keys["rope.scaling.attn_factor"]
    with pytest.raises(ModelFileError, match=r"attn_factor is missing, and readers differ"):
        plan_gguf(header(architecture, keys, path=path, extra=extra))
    with pytest.raises(ModelFileError, match="longrope is supported with"):
        plan_gguf(header(architecture, keys, path=path, extra=extra[:1]))


def test_factors_have_to_be_there(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(8))
    cut_off = header("llama", path=path, extra=(tensor("rope_freqs.weight", 8),))
    with pytest.raises(ModelFileError, match=r"the file ends within the tensor rope_freqs\.weight"):
        plan_gguf(cut_off)
    wrong = header("llama", path=path, extra=(tensor("rope_freqs.weight", 7),))
    with pytest.raises(ModelFileError, match=r"has F32 and shape \(7,\) instead of F32 and \(8,\)"):
        plan_gguf(wrong)
    path.unlink()
    with pytest.raises(ModelFileError, match="cannot be read"):
        plan_gguf(cut_off)


def places(plan: ModelPlan, layer: int = 1) -> dict[tuple[str, int | None], tuple[int, int, int, int]]:
    """Return rows, columns, offset and size of what a layer has, by role and expert."""
    return {
        (ref.role, ref.expert): (ref.rows, ref.columns, ref.offset, ref.num_bytes)
        for ref in plan.tensors
        if ref.layer == layer
    }


def test_fused_projections_are_parts_of_one_tensor() -> None:
    kind = TensorType.Q8_0
    without = tuple(f"blk.{layer}.attn_{part}.weight" for layer in range(2) for part in "qkv")
    extra = tuple(
        tensor(f"blk.{layer}.attn_qkv.weight", 128, HIDDEN, kind=kind, offset=1000) for layer in range(2)
    )
    found = places(plan_gguf(header("llama", without=without, extra=extra)))
    row = HIDDEN // 32 * 34
    assert found["query", None] == (64, HIDDEN, 1000, 64 * row)
    assert found["key", None] == (32, HIDDEN, 1000 + 64 * row, 32 * row)
    assert found["value", None] == (32, HIDDEN, 1000 + 96 * row, 32 * row)


def test_stacked_experts_are_parts_of_one_tensor() -> None:
    without = tuple(f"blk.{layer}.ffn_{part}_exps.weight" for layer in range(2) for part in ("gate", "up"))
    extra = tuple(
        tensor(f"blk.{layer}.ffn_gate_up_exps.weight", EXPERTS, 2 * FFN, HIDDEN, offset=500)
        for layer in range(2)
    )
    stacked = places(plan_gguf(header("qwen3moe")))
    fused = places(plan_gguf(header("qwen3moe", without=without, extra=extra)))
    size = FFN * HIDDEN * 4
    for expert in range(EXPERTS):
        assert stacked["ffn_gate", expert] == (FFN, HIDDEN, expert * size, size)
        assert stacked["ffn_down", expert] == (HIDDEN, FFN, expert * size, size)
        assert fused["ffn_gate", expert] == (FFN, HIDDEN, 500 + 2 * expert * size, size)
        assert fused["ffn_up", expert] == (FFN, HIDDEN, 500 + (2 * expert + 1) * size, size)
    assert stacked["router", None] == (EXPERTS, HIDDEN, 0, EXPERTS * HIDDEN * 4)


def test_normalised_experts_may_be_switched_off() -> None:
    assert shape_of("qwen3moe").normalize_experts
    assert not shape_of("qwen3moe", {"expert_weights_norm": False}).normalize_experts


def test_biases_of_llama_are_read_where_all_are_there() -> None:
    sizes = {"q": 64, "k": 32, "v": 32}
    biases = tuple(
        tensor(f"blk.{layer}.attn_{part}.bias", size) for layer in range(2) for part, size in sizes.items()
    )
    plan = plan_gguf(header("llama", extra=biases))
    assert plan.shape.qkv_bias
    assert places(plan)["query_bias", None] == (1, 64, 0, 256)
    assert "blk.1.attn_v.bias is missing" in refusal(header("llama", extra=biases[:-1]))
    assert "blk.0.attn_k.bias' is not supported" in refusal(header("llama", extra=biases[1:]))
    assert "blk.0.attn_k.bias is missing" in refusal(header("qwen2", without=("blk.0.attn_k.bias",)))


def test_tensors_lie_in_their_shards() -> None:
    file = header("qwen3")
    moved = {
        name: GgufTensor(name, item.dims, item.type, item.offset, item.num_bytes, int("blk.1" in name))
        for name, item in file.tensors.items()
    }
    sharded = GgufFile(file.path, 3, 32, file.metadata, MappingProxyType(moved), (Path("second.gguf"),))
    plan = plan_gguf(sharded)
    assert plan.files == (Path("model.gguf"), Path("second.gguf"))
    assert all(ref.file == (ref.layer == 1) for ref in plan.tensors)


ODD_VALUES: list[MetadataValue] = [
    True, -1, 0, 1, 2**31, 2**63, 0.5, -1.0, 0.0, math.inf, math.nan, 1e300, 1e-300, "", "x", (), (1, 2), (0.5,), ("x",),
    (True, False),
]  # fmt: skip


CIRCUMSTANCES: list[Mapping[str, MetadataValue]] = [
    {},
    {"rope.scaling.type": "yarn"},
    {"attention.sliding_window": 5},
]


@pytest.mark.parametrize("architecture", ALL)
def test_no_value_of_any_key_leads_to_another_error(architecture: str) -> None:
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    for index, name in enumerate((*sorted(_UNDERSTOOD | _UNDERSTOOD_EXPERTS), *caps)):
        for other, value in enumerate(ODD_VALUES):
            more = CIRCUMSTANCES[(index + other) % 3]
            try:
                plan = plan_gguf(header(architecture, {**more, name: value}))
            except ModelFileError:
                continue
            assert len(plan.shape.layers) == plan.shape.num_layers
