"""A llama model of a few hundred kilobytes with random weights and a working tokenizer, written in milliseconds.

Same shape of file as the demo model: byte-level BPE (all 256 bytes, a few merges), ChatML special tokens and template.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headway.core.plan import TensorType
from support.ggml_blocks import F32Array, decode, encode
from support.gguf_writer import MetadataInput, TensorInput, encode_gguf

ENDOFTEXT, IM_START, IM_END = 0, 1, 2
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FIRST_BYTE_TOKEN = len(SPECIAL_TOKENS)
"""Token id of byte 0; byte b is `FIRST_BYTE_TOKEN + b`."""

MERGES = (
    "Ġ t", "h e", "Ġt he", "i n", "e r", "Ġ a", "o n", "r e", "Ġ Ġ", "ĠĠ ĠĠ", "o r", "Ġ w", "Ġw or", "l d", "Ġwor ld",
    "l l", "he ll", "hell o", "d e", "de f", "s e", "e l", "se l", "sel f", "r n", "t u", "re tu", "retu rn", "Ġ =",
    "in t",
)  # fmt: skip

CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a tiny test model.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_NORMAL, _CONTROL, _UNUSED = 1, 3, 5  # llama.cpp's token types


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What was written: the file, and by tensor name the weights as the file stores them, dequantised."""

    path: Path
    weights: Mapping[str, F32Array]


def byte_symbols() -> list[str]:
    """Return GPT-2's printable symbol of each of the 256 bytes (bytes_to_unicode of the GPT-2 release)."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [shifted.get(byte, chr(byte)) for byte in range(256)]


def tiny_tokenizer(vocab: int = 320) -> dict[str, MetadataInput]:
    """Return the tokenizer's metadata with `vocab` tokens; what specials, bytes and merges leave is unused padding."""
    tokens = [*SPECIAL_TOKENS, *byte_symbols(), *(merge.replace(" ", "") for merge in MERGES)]
    types = [_CONTROL] * len(SPECIAL_TOKENS) + [_NORMAL] * (len(tokens) - len(SPECIAL_TOKENS))
    if vocab < len(tokens):
        raise ValueError(f"the tiny tokenizer needs at least {len(tokens)} tokens")
    padding = range(len(tokens), vocab)
    return {
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*tokens, *(f"[PAD{index}]" for index in padding)],
        "tokenizer.ggml.token_type": [*types, *(_UNUSED for _ in padding)],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": IM_START,
        "tokenizer.ggml.eos_token_id": IM_END,
        "tokenizer.ggml.unknown_token_id": ENDOFTEXT,
        "tokenizer.ggml.padding_token_id": IM_END,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def write_tiny_gguf(
    path: Path,
    *,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    ffn: int = 128,
    vocab: int = 320,
    context: int = 512,
    rope_theta: float = 10_000.0,
    rope_factors: bool = False,
    tensor_type: TensorType = TensorType.F32,
    types: Mapping[str, TensorType] | None = None,
    tied: bool = True,
    extra_metadata: Mapping[str, MetadataInput] | None = None,
) -> TinyModel:
    """Write a valid model to `path`, the same bytes for the same arguments; matrices are of `tensor_type` but for
    those that `types` names ("attn_q"), norms F32.

    `hidden`, `ffn` and `heads * head_dim` are multiples of 32 for quantised types. `extra_metadata` adds or replaces.
    """
    generator = np.random.default_rng(seed)
    tensors: list[TensorInput] = []
    weights: dict[str, F32Array] = {}

    def add(name: str, values: F32Array, kind: TensorType = TensorType.F32) -> None:
        data = encode(values, kind)
        tensors.append(TensorInput(name, values.shape[::-1], kind, data))
        weights[name] = decode(data, kind, values.shape)

    def matrix(name: str, rows: int, columns: int, scale: float) -> None:
        kind = (types or {}).get(name.split(".")[-2], tensor_type)
        add(name, (generator.standard_normal((rows, columns)) * scale).astype(np.float32), kind)

    def norm(name: str) -> None:
        add(name, (1 + 0.1 * generator.standard_normal(hidden)).astype(np.float32))

    matrix("token_embd.weight", vocab, hidden, 0.3)  # logits with a spread of about 2
    for layer in range(layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        matrix(block + "attn_q.weight", heads * head_dim, hidden, 1.5 * hidden**-0.5)
        matrix(block + "attn_k.weight", kv_heads * head_dim, hidden, 1.5 * hidden**-0.5)
        matrix(block + "attn_v.weight", kv_heads * head_dim, hidden, hidden**-0.5)
        matrix(block + "attn_output.weight", hidden, heads * head_dim, (heads * head_dim) ** -0.5)
        norm(block + "ffn_norm.weight")
        matrix(block + "ffn_gate.weight", ffn, hidden, hidden**-0.5)
        matrix(block + "ffn_up.weight", ffn, hidden, hidden**-0.5)
        matrix(block + "ffn_down.weight", hidden, ffn, ffn**-0.5)
    norm("output_norm.weight")
    if not tied:
        matrix("output.weight", vocab, hidden, 0.3)
    if rope_factors:
        add("rope_freqs.weight", np.linspace(1, 8, head_dim // 2, dtype=np.float32))

    metadata: dict[str, MetadataInput] = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": layers,
        "llama.context_length": context,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": ffn,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.attention.key_length": head_dim,
        "llama.attention.value_length": head_dim,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": head_dim,
        "llama.rope.freq_base": rope_theta,
        "llama.vocab_size": vocab,
        **tiny_tokenizer(vocab),
        **(extra_metadata or {}),
    }
    path.write_bytes(encode_gguf(metadata, tensors))
    return TinyModel(path, weights)
