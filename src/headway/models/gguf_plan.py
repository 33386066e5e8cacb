"""The plan of a model from a GGUF header: its sizes, its constants and the place of each tensor.

It accepts only what the forward pass computes exactly; a key or tensor that would change the output is refused by name.
Keys and tensor names: the GGUF specification and gguf-py's constants.py; their meaning and defaults: llama.cpp
(src/llama-model.cpp, src/models/*.cpp), except that windows of phi3 are honoured, which llama.cpp leaves out.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from headway.core.plan import LayerShape, ModelPlan, ModelShape
from headway.models.architecture_table import ARCHITECTURES, Architecture, by_gguf_name
from headway.models.gguf_file import GgufFile, MetadataValue
from headway.models.gguf_keys import Keys
from headway.models.gguf_names import holders
from headway.models.gguf_rope import ROTATION_TENSORS, read_ropes
from headway.models.limits import MAX_EXPERTS, MAX_INT32, MAX_LAYERS
from headway.models.placement import StoredTensor, place_tensors
from headway.models.quote import quoted
from headway.models.rope import float32

_ATTN_CAP, _FINAL_CAP = 50.0, 30.0  # llama.cpp's defaults, those of Gemma 2

# Keys that are read, or that describe without changing the output.
_UNDERSTOOD = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.scale",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "pooling_type",  # of embeddings, read with the tokenizer
        "rope.dimension_count",
        "rope.freq_base",
        "rope.freq_base_swa",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
        "tensor_data_layout",  # how the converter's input was laid out
        "vocab_size",
    }
)
_BIASES = frozenset({"blk.0.attn_q.bias", "blk.0.attn_qkv.bias"})
_UNDERSTOOD_EXPERTS = frozenset(
    {"expert_count", "expert_feed_forward_length", "expert_used_count", "expert_weights_norm"}
)

# Keys of techniques that we do not compute, with the values that switch them off.
_OFF_VALUES: Mapping[str, Sequence[MetadataValue]] = MappingProxyType(
    {
        "attention.causal": (True,),
        "attention.clamp_kqv": (0.0,),
        "attention.max_alibi_bias": (0.0,),
        "attention.shared_kv_layers": (0,),
        "attention.temperature_length": (0,),
        "attention.temperature_scale": (0.0,),
        "attn_logit_softcapping": (0.0,),
        "embedding_scale": (0.0, 1.0),
        "expert_count": (0,),
        "expert_gating_func": (0, 1),  # not said, and softmax
        "expert_group_count": (0, 1),
        "expert_group_used_count": (0, 1),
        "expert_shared_count": (0,),
        "expert_shared_feed_forward_length": (0,),
        "expert_used_count": (0,),
        "expert_weights_scale": (0.0, 1.0),
        "final_logit_softcapping": (0.0,),
        "leading_dense_block_count": (0,),
        "logit_scale": (0.0, 1.0),
        "nextn_predict_layers": (0,),
        "residual_scale": (0.0, 1.0),
        "rope.scaling.yarn_ext_factor": (1.0,),  # readers differ in what the other two mean
        "rope.scaling.yarn_attn_factor": (),
        "rope.scaling.yarn_log_multiplier": (0.0,),
        "use_parallel_residual": (False,),
    }
)


def plan_gguf(file: GgufFile, file_sha256: str | None = None) -> ModelPlan:
    """Return the plan of the model in `file`; `file_sha256` is passed through.

    Reads no tensor's data but the factors of rotations. Raises ModelFileError for a missing or contradictory key, a
    missing or misshapen tensor, and for anything that we could not compute exactly.
    """
    name = file.text("general.architecture")
    row = by_gguf_name(name)
    keys = Keys(file, name)
    if row is None:
        supported = ", ".join(row.name for row in ARCHITECTURES if row.gguf)
        keys.fail(f"the architecture {quoted(name)} is not supported (supported: {supported})")
    keys.refuse_unsupported(_understood(row), _OFF_VALUES)
    shape = _read_shape(keys, row)
    tensors = {
        name: StoredTensor(tensor.dims[::-1], tensor.type, tensor.file, tensor.offset, tensor.num_bytes)
        for name, tensor in file.tensors.items()
    }
    placed = place_tensors(
        shape,
        holders(row),
        tensors,
        where=str(file.path),
        ignored=ROTATION_TENSORS.__contains__,
    )
    return ModelPlan(path=file.path, files=file.files, file_sha256=file_sha256, shape=shape, tensors=placed)


def _understood(row: Architecture) -> frozenset[str]:
    caps = {f"{cap}_logit_softcapping" for cap in row.soft_caps}
    return _UNDERSTOOD | caps | (_UNDERSTOOD_EXPERTS if row.experts else frozenset())


def _read_shape(keys: Keys, row: Architecture) -> ModelShape:
    hidden_size = keys.size("embedding_length")
    num_heads = keys.size("attention.head_count")
    num_kv_heads = keys.size("attention.head_count_kv", num_heads)
    if num_heads % num_kv_heads:
        keys.fail(f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly")
    if "attention.key_length" not in keys and hidden_size % num_heads:
        keys.fail(f"{num_heads} heads do not divide the embedding length {hidden_size}")
    head_dim = keys.size("attention.key_length", hidden_size // num_heads)
    value_dim = keys.size("attention.value_length", head_dim)
    if value_dim != head_dim:
        keys.fail(f"keys of length {head_dim} with values of length {value_dim} are not supported")
    num_layers = keys.size("block_count", maximum=MAX_LAYERS)
    max_context = keys.size("context_length")
    windows = _windows(keys, row, num_layers, max_context)
    ropes, long_context = read_ropes(
        keys, row, head_dim=head_dim, max_context=max_context, local=any(windows)
    )
    num_experts = keys.size("expert_count", maximum=MAX_EXPERTS) if row.experts else 0
    return ModelShape(
        architecture=row.name,
        vocab_size=_vocab_size(keys),
        max_context=max_context,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_size=keys.size("expert_feed_forward_length" if row.experts else "feed_forward_length"),
        norm_epsilon=keys.positive("attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in keys.file.tensors,
        ropes=ropes,
        layers=tuple(
            LayerShape(rope=1 if window and len(ropes) > 1 else 0, window=window) for window in windows
        ),
        long_context=long_context,
        activation=row.activation,
        attention_scale=_attention_scale(keys, row, hidden_size, num_heads, num_layers),
        attention_softcap=_soft_cap(keys, "attn", _ATTN_CAP) if "attn" in row.soft_caps else None,
        logit_softcap=_soft_cap(keys, "final", _FINAL_CAP if "attn" in row.soft_caps else 0.0)
        if "final" in row.soft_caps
        else None,
        embedding_scale=float32(math.sqrt(hidden_size)) if row.scaled_embeddings else 1.0,
        qkv_bias=row.qkv_bias or not keys.file.tensors.keys().isdisjoint(_BIASES),
        qk_norm=row.qk_norm,
        post_norms=row.post_norms,
        num_experts=num_experts,
        num_experts_per_token=keys.size("expert_used_count", maximum=num_experts) if row.experts else 0,
        normalize_experts=keys.flag("expert_weights_norm", True) if row.experts else True,
    )


def _windows(keys: Keys, row: Architecture, num_layers: int, max_context: int) -> list[int | None]:
    """Return each layer's window, None where it sees everything."""
    default = row.gguf_windows.get((num_layers, max_context), row.gguf_window)
    window = keys.integer("attention.sliding_window", default)
    if window == 0:
        return [None] * num_layers
    if not 0 < window <= MAX_INT32:
        keys.fail(f"{keys.name('attention.sliding_window')} is {window}, out of range")
    pattern = keys.get("attention.sliding_window_pattern", row.gguf_period)
    if isinstance(pattern, tuple):
        if len(pattern) != num_layers or not all(type(local) is bool for local in pattern):
            keys.fail(
                f"{keys.name('attention.sliding_window_pattern')} does not have one bool for each of {num_layers} layers"
            )
        return [window if local else None for local in pattern]
    if pattern is None:
        if window >= max_context:
            return [None] * num_layers
        keys.fail(
            f"{keys.name('attention.sliding_window')} is {window}, but the file does not say in which layers"
        )
    period = keys.integer("attention.sliding_window_pattern", row.gguf_period)
    if period < 0:
        keys.fail(f"{keys.name('attention.sliding_window_pattern')} is {period}, out of range")
    return [None if period and layer % period == period - 1 else window for layer in range(num_layers)]


def _attention_scale(
    keys: Keys, row: Architecture, hidden_size: int, num_heads: int, num_layers: int
) -> float | None:
    """Return what scores are multiplied by where it is not 1 / sqrt(head_dim)."""
    if scale := keys.number("attention.scale", 0.0):
        return keys.positive("attention.scale", scale)
    if num_layers == row.gguf_scale_of_hidden:
        if hidden_size < num_heads:
            keys.fail(f"{num_heads} heads do not divide the embedding length {hidden_size}")
        return 1 / math.sqrt(hidden_size // num_heads)
    return None


def _soft_cap(keys: Keys, which: str, default: float) -> float | None:
    name = f"{which}_logit_softcapping"
    return keys.positive(name, default) if keys.number(name, default) else None


def _vocab_size(keys: Keys) -> int:
    """Return the number of rows of the token embedding, which every other count of tokens must equal."""
    embedding = keys.file.tensors.get("token_embd.weight")
    if embedding is None:
        keys.fail("the tensor token_embd.weight is missing")
    if len(embedding.dims) != 2:
        keys.fail(f"token_embd.weight has {len(embedding.dims)} dimensions instead of 2")
    vocab_size = keys.size("vocab_size", embedding.dims[1])
    if vocab_size != embedding.dims[1]:
        keys.fail(f"{keys.name('vocab_size')} is not token_embd.weight's number of rows, {embedding.dims[1]}")
    if "tokenizer.ggml.tokens" in keys.file.metadata:
        num_tokens = len(keys.file.texts("tokenizer.ggml.tokens"))
        if num_tokens != vocab_size:
            keys.fail(f"the tokenizer has {num_tokens} tokens, token_embd.weight {vocab_size} rows")
    return vocab_size
