"""Plans of Hugging Face folders: what is read, and what is refused by name.

That plans compute what `transformers` computes is shown in tests/accuracy/test_plans.py, for every architecture.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.core.errors import ModelFileError
from headway.core.plan import ModelPlan, TensorType
from headway.models.architectures import open_plan
from support.checkpoint_case import VOCAB_SIZE, Case
from support.checkpoint_folder import write_folder, write_weights
from support.checkpoint_weights import F32Array, make_weights
from support.checkpoints import case_named

LINEAR = {"rope_type": "linear", "factor": 2.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 12, "long_factor": [2.0] * 12}


def write(folder: Path, name: str, config: Mapping[str, Any], without: tuple[str, ...] = ()) -> Path:
    """Write the case `name` with keys of its configuration replaced, or left out."""
    case = case_named(name)
    merged = {key: value for key, value in {**case.config, **config}.items() if key not in without}
    return write_folder(folder / "model", case, make_weights(case), config=merged)


def plan_of(
    folder: Path, name: str, config: Mapping[str, Any] | None = None, without: tuple[str, ...] = ()
) -> ModelPlan:
    return open_plan(write(folder, name, config or {}, without))


def test_the_shape_is_read(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "qwen3moe")
    shape = plan.shape
    assert (plan.path, plan.file_sha256, shape.architecture) == (tmp_path / "model", None, "qwen3moe")
    assert [path.name for path in plan.files] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert (shape.vocab_size, shape.max_context, shape.hidden_size) == (VOCAB_SIZE, 1024, 96)
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.ffn_size) == (4, 2, 32, 40)
    assert (shape.num_experts, shape.num_experts_per_token, shape.normalize_experts) == (8, 2, True)
    assert (shape.qk_norm, shape.qkv_bias, shape.post_norms, shape.tied_embeddings) == (
        True,
        False,
        False,
        False,
    )
    assert (shape.ropes[0].dim, shape.ropes[0].interleaved) == (32, False)


def test_fused_projections_are_several_references_into_one_tensor(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "phi3")
    parts = [ref for ref in plan.tensors if ref.layer == 1 and ref.role in ("query", "key", "value")]
    assert [(ref.role, ref.rows) for ref in parts] == [("query", 96), ("key", 32), ("value", 32)]
    assert all(after.offset == before.offset + before.num_bytes for before, after in pairwise(parts))
    gate, up = (
        next(ref for ref in plan.tensors if ref.layer == 1 and ref.role == role)
        for role in ("ffn_gate", "ffn_up")
    )
    assert up.offset == gate.offset + gate.num_bytes


def test_norms_of_gemma_are_stored_less_one(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "gemma3")
    added = {ref.role: ref.add for ref in plan.tensors}
    assert {role for role, add in added.items() if add == 1.0} == {
        "attention_norm",
        "attention_post_norm",
        "ffn_norm",
        "ffn_post_norm",
        "key_norm",
        "output_norm",
        "query_norm",
    }
    assert all(add == 0.0 for role, add in added.items() if not role.endswith("norm"))


def test_experts_may_be_stacked(tmp_path: Path) -> None:
    case = case_named("qwen3moe")
    weights = make_weights(case)
    stacked = {name: values for name, values in weights.items() if ".experts." not in name}
    for layer in range(2):
        mlp = f"model.layers.{layer}.mlp.experts."
        gate, up, down = (
            np.stack([weights[f"{mlp}{expert}.{part}_proj.weight"] for expert in range(8)])
            for part in ("gate", "up", "down")
        )
        stacked[mlp + "gate_up_proj"] = np.concatenate([gate, up], axis=1)
        stacked[mlp + "down_proj"] = down
    plain, other = (
        tensors_of(open_plan(write_folder(tmp_path / name, case, values)))
        for name, values in (("plain", weights), ("stacked", stacked))
    )
    assert plain == other


def tensors_of(plan: ModelPlan) -> dict[tuple[str, int | None, int | None], bytes]:
    """Return what every reference of the plan points to."""
    data = [path.read_bytes() for path in plan.files]
    return {
        (ref.role, ref.layer, ref.expert): data[ref.file][ref.offset : ref.offset + ref.num_bytes]
        for ref in plan.tensors
    }


@pytest.mark.parametrize("prefix", ["", "language_model.model.", "model.language_model."])
def test_the_decoder_may_have_other_names_around_it(tmp_path: Path, prefix: str) -> None:
    case = case_named("qwen3")  # tied: it has no head
    weights = make_weights(case)
    renamed = {prefix + name.removeprefix("model."): values for name, values in weights.items()}
    write_folder(tmp_path / "plain", case, weights)
    write_folder(tmp_path / "other", case, renamed)
    plain, other = (tensors_of(open_plan(tmp_path / name)) for name in ("plain", "other"))
    assert plain == other


def gemma3_with_vision() -> tuple[Case, dict[str, F32Array], dict[str, Any]]:
    case = case_named("gemma3")
    vision = {
        "vision_tower.vision_model.embeddings.patch_embedding.weight": np.zeros((2, 3), np.float32),
        "multi_modal_projector.mm_input_projection_weight": np.zeros((2, 3), np.float32),
    }
    weights = {f"language_model.{name}": values for name, values in make_weights(case).items()}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 255_999,
        "eoi_token_index": 256_000,
        "image_token_index": 262_144,
        "mm_tokens_per_image": 256,
        "model_type": "gemma3",
        "text_config": {key: value for key, value in case.config.items() if key != "architectures"},
        "vision_config": {"model_type": "siglip_vision_model"},
    }
    return case, {**weights, **vision}, config


def test_the_text_model_beside_a_vision_model_is_planned(tmp_path: Path) -> None:
    case, weights, config = gemma3_with_vision()
    with_vision = open_plan(write_folder(tmp_path / "vision", case, weights, config=config))
    alone = open_plan(write_folder(tmp_path / "text", case, make_weights(case)))
    assert with_vision.shape == alone.shape
    assert tensors_of(with_vision) == tensors_of(alone)


@pytest.mark.parametrize(
    ("inside", "outside", "tied"),
    [(None, None, True), (True, None, True), (None, False, False), (False, None, False), (True, False, None)],
)
def test_the_model_and_its_text_configuration_agree_on_tied_embeddings(
    tmp_path: Path, inside: bool | None, outside: bool | None, tied: bool | None
) -> None:
    case, weights, config = gemma3_with_vision()
    config["text_config"]["tie_word_embeddings"] = inside
    config["tie_word_embeddings"] = outside
    message = refusal_or_none(write_folder(tmp_path / "model", case, weights, config=config))
    if tied:
        assert message is None
    else:
        assert message is not None
        assert ("lm_head.weight is missing" in message) == (tied is False)
        assert ("tie_word_embeddings differs" in message) == (tied is None)


def test_keys_that_text_configurations_leave_out_have_their_defaults(tmp_path: Path) -> None:
    case, weights, config = gemma3_with_vision()
    left_out = ("rope_theta", "rope_local_base_freq", "rms_norm_eps", "sliding_window_pattern")
    config["text_config"] = {
        key: value for key, value in config["text_config"].items() if key not in left_out
    }
    plan = open_plan(write_folder(tmp_path / "vision", case, weights, config=config))
    assert plan.shape == open_plan(write_folder(tmp_path / "text", case, make_weights(case))).shape


@pytest.mark.parametrize(
    ("name", "config", "without"),
    [
        ("llama", {"rope_scaling": {"rope_type": "default"}}, ()),
        ("llama", {"layer_types": ["full_attention"] * 3, "sliding_window": None}, ()),
        ("llama", {"quantization_config": None, "some_key": None, "rope_interleaved": False}, ()),
        ("llama", {"num_key_value_heads": None, "head_dim": None}, ()),
        ("llama", {"auto_map": {"AutoModel": "evil.Model"}, "architectures": None}, ()),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ()),
        ("llama", {}, ("architectures", "hidden_act", "rope_theta", "num_key_value_heads")),
        ("qwen2", {"use_mrope": False}, ("use_sliding_window", "max_window_layers", "sliding_window")),
        ("phi3", {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False}, ()),
        ("gemma2", {"sliding_window_size": 40, "sliding_window_pattern": 2}, ()),
    ],
)
def test_what_changes_nothing_is_accepted(
    tmp_path: Path, name: str, config: Mapping[str, Any], without: tuple[str, ...]
) -> None:
    changed = plan_of(tmp_path, name, config, without)
    write_folder(tmp_path / "plain", case_named(name), make_weights(case_named(name)))
    assert changed.shape == open_plan(tmp_path / "plain").shape


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("llama", {"model_type": "mamba"}, r"model_type 'mamba' is not supported \(supported: llama, mistral"),
        ("llama", {"model_type": 5}, "model_type is 5, not a string"),
        ("llama", {"model_type": None}, "model_type is missing"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "architectures is"),
        ("llama", {"architectures": "LlamaForCausalLM"}, "architectures is"),
        ("llama", {"quantization_config": {"quant_method": "awq"}}, r"quantised weights \('awq'\)"),
        ("llama", {"quantization_config": 4}, "quantization_config is 4, not an object"),
        ("llama", {"rope_ratio": 2}, "the key 'rope_ratio' is not supported, it may change the output"),
        ("llama", {"attention_bias": True}, "attention_bias is True, which is not supported"),
        ("llama", {"mlp_bias": True}, "mlp_bias is True"),
        ("llama", {"hidden_act": "gelu"}, r"hidden_act is 'gelu', which is not supported \(only silu is\)"),
        ("llama", {"sliding_window": 40}, "sliding_window is 40"),
        ("llama", {"layer_types": ["sliding_attention"] * 3}, "layer_types contradicts"),
        ("llama", {"layer_types": ["chunked_attention"] * 3}, "something else than full_attention"),
        ("llama", {"layer_types": ["full_attention"]}, "not a list of 3 types"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ("llama", {"num_experts": 4}, "num_experts is 4"),
        ("llama", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        ("llama", {"hidden_size": -64}, "hidden_size is -64, out of range"),
        ("llama", {"hidden_size": 2**31}, "hidden_size is 2147483648, out of range"),
        ("llama", {"hidden_size": 64.0}, "hidden_size is 64.0, not an integer"),
        ("llama", {"hidden_size": True}, "hidden_size is True, not an integer"),
        ("llama", {"hidden_size": None}, "hidden_size is missing"),
        ("llama", {"num_hidden_layers": 1_000_000_000}, "num_hidden_layers is 1000000000, out of range"),
        ("llama", {"num_hidden_layers": 4}, r"tensor model\.layers\.3\.input_layernorm\.weight is missing"),
        ("llama", {"num_hidden_layers": 2}, r"tensor 'model\.layers\.2\.[^']*' is not supported"),
        ("llama", {"num_key_value_heads": 3}, "4 heads cannot share 3 KV heads"),
        ("llama", {"head_dim": 1_000_000}, "heads of 1000000 dimensions are not supported"),
        ("llama", {"head_dim": 15}, "15 of a head's 15 dimensions rotate"),
        ("llama", {"intermediate_size": 64}, r"gate_proj\.weight has shape \(136, 64\) instead of \(64, 64\)"),
        ("llama", {"vocab_size": 10}, r"embed_tokens\.weight has shape"),
        ("llama", {"tie_word_embeddings": False}, r"the tensor lm_head\.weight is missing"),
        ("llama", {"tie_word_embeddings": 1}, "tie_word_embeddings is 1, neither true nor false"),
        ("llama", {"rms_norm_eps": 0}, "rms_norm_eps is 0, out of range"),
        ("llama", {"rms_norm_eps": 10**400}, "out of range"),  # found by fuzzing: no float holds it
        ("llama", {"rope_theta": 1e30}, "rope_theta is 1e\\+30, out of range"),
        ("llama", {"rope_theta": "10000"}, "rope_theta is '10000', not a number"),
        ("llama", {"rope_scaling": []}, r"rope_scaling is \[\], not an object"),
        ("llama", {"rope_scaling": {"type": "ntk"}}, "rope_type is 'ntk', which is not supported"),
        ("llama", {"rope_scaling": {"rope_type": "proportional"}}, "is 'proportional'"),
        ("llama", {"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor is missing"),
        ("llama", {"rope_scaling": {**LINEAR, "factor": 0}}, "rope_scaling.factor is 0, out of range"),
        ("llama", {"rope_scaling": {**LINEAR, "mrope_section": [1]}}, "the key 'rope_scaling.mrope_section'"),
        ("llama", {"rope_scaling": {**LINEAR, "alpha": 2}}, "the key 'rope_scaling.alpha' is not supported"),
        ("llama", {"rope_scaling": LINEAR, "rope_parameters": LINEAR}, "of which only one"),
        (
            "llama",
            {"rope_scaling": YARN, "original_max_position_embeddings": 256},
            "original_max_position_embeddings is 256, but",
        ),
        ("llama", {"rope_scaling": {**YARN, "truncate": "no"}}, "truncate is 'no', neither true nor false"),
        ("llama", {"rope_scaling": {**YARN, "attention_factor": -1}}, "attention_factor is -1, out of range"),
        ("phi3", {"rope_scaling": LONGROPE | {"long_factor": [1.0] * 11}}, "long_factor is not a list of 12"),
        ("phi3", {"rope_scaling": LONGROPE | {"short_factor": [0.0] * 12}}, "short_factor holds something"),
        ("phi3", {"partial_rotary_factor": 0.66}, "21 of a head's 32 dimensions rotate"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": None, "layer_types": ["sliding_attention"] * 3},
         "sliding_window is missing, but layers have one"),
        ("qwen3moe", {"mlp_only_layers": [0]}, "layers without experts"),
        ("qwen3moe", {"decoder_sparse_step": 2}, "layers without experts"),
        ("qwen3moe", {"num_experts": 0}, "num_experts is 0, out of range"),
        ("qwen3moe", {"num_experts": 9}, r"gate\.weight has shape \(8, 96\) instead of \(9, 96\)"),
        ("qwen3moe", {"num_experts_per_tok": 9}, "num_experts_per_tok is 9, out of range"),
        ("qwen3moe", {"num_local_experts": 4}, "num_experts differs from num_local_experts"),
        ("qwen3moe", {"shared_expert_intermediate_size": 40}, "shared_expert_intermediate_size is 40"),
        ("gemma2", {"sliding_window_size": 41}, "sliding_window_size differs from sliding_window"),
        ("gemma2", {"sliding_window_pattern": 3}, "sliding_window_pattern is 3"),
        ("gemma2", {"attn_logit_softcapping": -1}, "attn_logit_softcapping is -1, out of range"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        ("gemma3", {"rope_scaling": None, "rope_parameters": LINEAR}, "the key 'rope_parameters.factor'"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_refused(
    tmp_path: Path, name: str, config: Mapping[str, Any], reason: str
) -> None:
    folder = write(tmp_path, name, config)
    with pytest.raises(ModelFileError, match=reason) as caught:
        open_plan(folder)
    assert caught.value.message.startswith(str(folder))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": "\xff"}', "not valid UTF-8"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"a": "' + b" " * 2**20 + b'"}', "larger than 1048576 bytes"),
    ],
)
def test_a_configuration_that_is_no_configuration_is_refused(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    folder = write(tmp_path, "llama", {})
    (folder / "config.json").write_bytes(data)
    with pytest.raises(ModelFileError, match=reason) as caught:
        open_plan(folder)
    assert caught.value.message.startswith(f"{folder / 'config.json'}")


@pytest.mark.parametrize(
    ("name", "config"),
    [
        # Qwen3-Coder-30B-A3B's
        ("qwen3moe", {"use_qk_norm": True, "qkv_bias": False, "shared_expert_intermediate_size": 0}),
        ("llama", {"activation": "swiglu"}),  # Falcon3's
    ],
)
def test_keys_that_repeat_what_an_architecture_does_are_no_obstacle(
    tmp_path: Path, name: str, config: Mapping[str, Any]
) -> None:
    expected = case_named(name).config["num_hidden_layers"]
    assert plan_of(tmp_path, name, config).shape.num_layers == expected


@pytest.mark.parametrize(("name", "value"), [("llama", True), ("qwen3", False)])
def test_keys_that_contradict_what_an_architecture_does_are_refused(
    tmp_path: Path, name: str, value: bool
) -> None:
    with pytest.raises(ModelFileError, match=f"use_qk_norm is {value}, which is not supported"):
        plan_of(tmp_path, name, {"use_qk_norm": value})


@pytest.mark.parametrize(
    ("max_positions", "original", "longest"),
    [(1024, 1024, 4096), (2048, 1024, 4096), (8192, 1024, 8192), (1024, None, 1024)],
)
def test_a_context_is_as_long_as_yarn_makes_it(
    tmp_path: Path, max_positions: int, original: int | None, longest: int
) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": original}
    config = {"max_position_embeddings": max_positions, "rope_scaling": yarn}
    assert plan_of(tmp_path, "qwen2", config).shape.max_context == longest


def test_folders_without_what_is_needed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"has no config\.json, so it is no model's folder\.$"):
        open_plan(tmp_path)
    folder = write(tmp_path, "llama", {})
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        ModelFileError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"
    ):
        open_plan(folder)
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(ModelFileError, match=r"pickled .* save the model anew with transformers"):
        open_plan(folder)


def test_folders_of_something_else_say_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").touch()
    with pytest.raises(ModelFileError, match="merge this one into its model"):
        open_plan(tmp_path)
    for name in ("b-Q8_0.gguf", "a-Q4_K_M.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ModelFileError, match=r"name a file in it, such as .*/a-Q4_K_M\.gguf\.$"):
        open_plan(tmp_path)


def test_weights_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, "llama", {})
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(ModelFileError, match="a symbolic link out of the model's folder"):
        open_plan(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"weight_map": None}, "has no weight_map"),
        ({"weight_map": {}}, "has no weight_map"),
        ({"weight_map": {"a": "../a.safetensors"}}, "is no plain name"),
        ({"weight_map": {"a": "/etc/a.safetensors"}}, "is no plain name"),
        ({"weight_map": {"a": "..\\a.safetensors"}}, "is no plain name"),
        ({"weight_map": {"a": ".safetensors"}}, "is no plain name"),
        ({"weight_map": {"a": "a\x1b.safetensors"}}, "is no plain name"),
        ({"weight_map": {"a": "pytorch_model.bin"}}, "is no plain name"),
        ({"weight_map": {"a": 1}}, "is no plain name"),
        ({"weight_map": {"a": "missing.safetensors"}}, r"missing\.safetensors: cannot be read"),
        ({"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(2000)}}, "names 2000 files"),
    ],
)  # fmt: skip
def test_an_index_that_leads_astray_is_refused(
    tmp_path: Path, change: Mapping[str, Any], reason: str
) -> None:
    folder = write(tmp_path, "qwen3moe", {})
    (folder / "model.safetensors.index.json").write_text(json.dumps(change))
    with pytest.raises(ModelFileError, match=reason):
        open_plan(folder)


def test_an_index_and_its_shards_have_to_agree(tmp_path: Path) -> None:
    folder = write(tmp_path, "qwen3moe", {})
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    places = index["weight_map"]
    moved = places.pop("model.norm.weight")
    path.write_text(json.dumps(index))
    with pytest.raises(
        ModelFileError, match=r"holds the tensor 'model\.norm\.weight', which .* does not say"
    ):
        open_plan(folder)
    places |= {"model.norm.weight": moved, "model.extra.weight": moved}
    path.write_text(json.dumps(index))
    with pytest.raises(ModelFileError, match=r"the tensor 'model\.extra\.weight' is missing, which .* says"):
        open_plan(folder)


def test_a_head_of_its_own_counts_even_where_the_configuration_says_tied(tmp_path: Path) -> None:
    case = case_named("llama-untied")
    folder = write(tmp_path, "llama-untied", {"tie_word_embeddings": True})
    assert not open_plan(folder).shape.tied_embeddings
    write_folder(tmp_path / "untied", case, make_weights(case))
    assert open_plan(folder).shape == open_plan(tmp_path / "untied").shape


def test_buffers_that_old_checkpoints_carry_are_ignored_and_other_tensors_refused(tmp_path: Path) -> None:
    case = case_named("llama")
    weights = make_weights(case)
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    folder = write_folder(tmp_path / "model", case, {**weights, **extra})
    assert len(open_plan(folder).tensors) == len(weights)
    write_weights(folder, {**weights, "score.weight": np.ones((2, 64), np.float32)}, TensorType.F32)
    with pytest.raises(ModelFileError, match=r"the tensor 'score\.weight' is not supported, it would change"):
        open_plan(folder)


@pytest.mark.parametrize(
    ("name", "refused"),
    [("vision_tower.embeddings.position_ids", False), ("model.layers.0.mlp.gate_proj.weight_scale", True)],
)
def test_types_that_are_not_run_are_refused_where_they_would_be(
    tmp_path: Path, name: str, refused: bool
) -> None:
    folder = write(tmp_path, "llama", {})
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    entries[name] = {"dtype": "I64", "shape": [1, 2], "data_offsets": [len(body), len(body) + 16]}
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body + bytes(16))
    message = refusal_or_none(folder)
    assert (message is not None) == refused
    assert message is None or f"the tensor '{name}' is of type I64, which is not supported" in message


ODD_VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**31, 10**30, 0.5, -1e400, 1e-300, "", "x", [], [1], ["x"], [None] * 3, {}, {"a": 1}
]  # fmt: skip


def paths_of(values: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the keys of an object, and those of the objects in it."""
    found: list[tuple[str, ...]] = []
    for key, value in values.items():
        found.append((key,))
        if isinstance(value, dict):
            found += [(key, *path) for path in paths_of(value)]
    return found


def with_value(values: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the object with the value at `path` replaced."""
    inner = value if len(path) == 1 else with_value(values[path[0]], path[1:], value)
    return {**values, path[0]: inner}


@pytest.mark.parametrize("name", ["llama3-rope", "qwen2", "qwen3moe", "phi3-longrope-long", "gemma3-layers"])
def test_no_value_of_any_key_leads_to_another_error(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, name, {})
    config = case_named(name).config
    for index, path in enumerate(paths_of(config)):
        for value in ODD_VALUES[index % 6 :: 6]:  # three of them, each key other ones
            text = json.dumps(with_value(config, path, value)).replace("-Infinity", "-1e400")
            (folder / "config.json").write_text(text)
            message = refusal_or_none(folder)
            assert message is None or (message.startswith(str(folder)) and "\n" not in message), (path, value)


def refusal_or_none(folder: Path) -> str | None:
    try:
        open_plan(folder)
    except ModelFileError as error:
        return error.message
    return None
