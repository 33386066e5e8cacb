"""Random weights of the tiny checkpoints, by the names that `transformers` gives them: the same for the same case.

`numpy.random.RandomState` draws them, whose stream numpy keeps as it is (NEP 19). Their spread is chosen so that the
model is neither dead nor chaotic: attention scores have a standard deviation of about 1.5, every block adds about as much
as the embedding holds, logits have one of about 3; norms, biases and the router are uneven.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from support.checkpoint_case import Case, Config

F32Array = npt.NDArray[np.float32]

_SCORE_GAIN: Final = 1.2
"""Of query and key each. With 1.4 int8 is 4 to 6.5 % off, in double precision as well (docs/log.md)."""
_LOGIT_SPREAD: Final = 3.0


class _Matrix(Protocol):
    def __call__(self, rows: int, columns: int, gain: float = 1.0) -> F32Array: ...


class _Normal(Protocol):
    def __call__(self, *shape: int, spread: float, mean: float = 0.0) -> F32Array: ...


class _Norm(Protocol):
    def __call__(self, size: int, mean: float = 1.0) -> F32Array: ...


def make_weights(case: Case) -> dict[str, F32Array]:
    """Return every tensor of the case as float32 values that its storage type holds exactly."""
    random = np.random.RandomState(case.seed)
    return {name: round_to(values, case.dtype) for name, values in _draw(case.config, random)}


def round_to(values: F32Array, dtype: Literal["F32", "F16", "BF16"]) -> F32Array:
    """Return the values that remain when they are stored as `dtype`."""
    match dtype:
        case "F32":
            return values
        case "F16":
            return values.astype(np.float16).astype(np.float32)
        case "BF16":
            bits = values.view(np.uint32)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)  # to nearest, ties to even
            return rounded.astype(np.uint32).view(np.float32)


def head_dim(config: Config) -> int:
    """Return the size of one head."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _draw(config: Config, random: np.random.RandomState) -> Iterator[tuple[str, F32Array]]:
    hidden, gemma = config["hidden_size"], config["model_type"].startswith("gemma")
    tied = config["tie_word_embeddings"]

    def normal(*shape: int, spread: float, mean: float = 0.0) -> F32Array:
        return (mean + spread * random.standard_normal(shape)).astype(np.float32)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> F32Array:
        return normal(rows, columns, spread=gain / np.sqrt(columns))

    def norm(size: int, mean: float = 1.0) -> F32Array:
        return normal(size, spread=0.25, mean=mean - 1.0 if gemma else mean)  # gemma's are stored less 1

    # Gemma scales embeddings by sqrt(hidden_size) and makes up for it in the last norm.
    embedding = (1.0 if gemma else _LOGIT_SPREAD if tied else 0.7 * np.sqrt(hidden)) / np.sqrt(hidden)
    yield "model.embed_tokens.weight", normal(config["vocab_size"], hidden, spread=embedding)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield f"{prefix}input_layernorm.weight", norm(hidden)
        for name, values in _attention(config, matrix, normal, norm):
            yield f"{prefix}self_attn.{name}", values
        yield f"{prefix}post_attention_layernorm.weight", norm(hidden, 0.9 if gemma else 1.0)
        if gemma:
            yield f"{prefix}pre_feedforward_layernorm.weight", norm(hidden)
            yield f"{prefix}post_feedforward_layernorm.weight", norm(hidden, 0.6)
        for name, values in _feed_forward(config, matrix):
            yield f"{prefix}mlp.{name}", values
    yield "model.norm.weight", norm(hidden, _LOGIT_SPREAD if gemma else 1.0)
    if not tied:
        yield "lm_head.weight", matrix(config["vocab_size"], hidden, _LOGIT_SPREAD)


def _attention(
    config: Config, matrix: _Matrix, normal: _Normal, norm: _Norm
) -> Iterator[tuple[str, F32Array]]:
    hidden, size = config["hidden_size"], head_dim(config)
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    qk_norm = config["model_type"] in ("qwen3", "qwen3_moe", "gemma3_text")
    gain = 1.0 if qk_norm else _SCORE_GAIN
    query, key, value = matrix(queries, hidden, gain), matrix(keys, hidden, gain), matrix(keys, hidden)
    if config["model_type"] == "phi3":
        yield "qkv_proj.weight", np.concatenate([query, key, value])
    else:
        yield "q_proj.weight", query
        yield "k_proj.weight", key
        yield "v_proj.weight", value
    if config["model_type"] == "qwen2":
        yield "q_proj.bias", normal(queries, spread=0.5)
        yield "k_proj.bias", normal(keys, spread=0.5)
        yield "v_proj.bias", normal(keys, spread=0.4)
    if qk_norm:
        yield "q_norm.weight", norm(size, _SCORE_GAIN)
        yield "k_norm.weight", norm(size, _SCORE_GAIN)
    yield "o_proj.weight", matrix(hidden, queries, 1.5)  # values average out


def _feed_forward(config: Config, matrix: _Matrix) -> Iterator[tuple[str, F32Array]]:
    hidden = config["hidden_size"]
    num_experts = config.get("num_experts", 0)
    if num_experts:
        yield "gate.weight", matrix(num_experts, hidden, 1.2)
    size = config["moe_intermediate_size" if num_experts else "intermediate_size"]
    for prefix in [f"experts.{expert}." for expert in range(num_experts)] or [""]:
        gate, up = matrix(size, hidden), matrix(size, hidden)
        if config["model_type"] == "phi3":
            yield "gate_up_proj.weight", np.concatenate([gate, up])
        else:
            yield f"{prefix}gate_proj.weight", gate
            yield f"{prefix}up_proj.weight", up
        yield f"{prefix}down_proj.weight", matrix(hidden, size, 2.0 if num_experts else 1.5)


def make_tokens(case: Case) -> list[int]:
    """Return the case's sequence of random token ids."""
    drawn = np.random.RandomState(case.seed + 1_000).randint(case.config["vocab_size"], size=case.num_tokens)
    return [int(token) for token in drawn]


def checksum(weights: Mapping[str, F32Array]) -> float:
    """Return a sum over all weights that tells whether references were made of the same ones."""
    sums = [float(np.abs(values, dtype=np.float64).sum()) for values in weights.values()]
    return round(sum(index * value for index, value in enumerate(sums, 1)), 3)
