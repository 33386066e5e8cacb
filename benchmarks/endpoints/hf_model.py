"""The demo model's GGUF file as a Hugging Face folder in bfloat16, for servers that read no GGUF on a CPU.

Weights are what the file's blocks stand for, rounded to bfloat16 (8 bits of mantissa, more than the blocks have); ids, chat
template and end tokens are those that Headway takes from the same file, so that every server sees the same tokens. Queries
and keys are turned back from llama.cpp's order of a head's dimensions to that of `transformers` (convert_hf_to_gguf.py,
`LlamaModel.permute`).
"""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import decoders

from headway import _native
from headway.core.plan import TensorType
from headway.models.gguf import read_gguf
from headway.models.gguf_file import GgufFile, GgufTensor
from headway.models.gguf_tokenizer import read_gguf_tokenizer

_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_A_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_STAMP = "made-of.json"
_VERSION = 1
"""Of what is written here: a folder of another is made anew."""


def ensure_hf_model(gguf: Path, folder: Path) -> Path:
    """Write the folder unless it was made of this file; return it. Only plain Llama files: raises KeyError for others."""
    found = gguf.stat()
    stamp = {"file": gguf.name, "bytes": found.st_size, "version": _VERSION}
    path = folder / _STAMP
    if not (path.is_file() and json.loads(path.read_text()) == stamp):
        write_hf_model(gguf, folder)
        path.write_text(json.dumps(stamp))
    return folder


def write_hf_model(gguf: Path, folder: Path) -> None:
    """Write config, tokenizer and weights."""
    folder.mkdir(parents=True, exist_ok=True)
    file = read_gguf(gguf)
    config = llama_config(file)
    parts = read_gguf_tokenizer(file.metadata)
    pipeline = parts.parsing
    pipeline.decoder = decoders.ByteLevel()
    pipeline.save(str(folder / "tokenizer.json"))
    eos = parts.tokens[file.integer("tokenizer.ggml.eos_token_id")]
    _write(folder / "config.json", config | {"eos_token_id": sorted(parts.eos_ids)})
    _write(folder / "generation_config.json", {"eos_token_id": sorted(parts.eos_ids)})
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": eos,
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            "chat_template": file.text("tokenizer.chat_template"),
        },
    )
    write_safetensors(folder / "model.safetensors", weights(file))


def llama_config(file: GgufFile) -> dict[str, Any]:
    """Return config.json's fields but for the tokens."""
    heads = file.integer("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": file.integer("llama.embedding_length"),
        "intermediate_size": file.integer("llama.feed_forward_length"),
        "num_hidden_layers": file.integer("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.integer("llama.attention.head_count_kv", heads),
        "max_position_embeddings": file.integer("llama.context_length"),
        "rms_norm_eps": file.number("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": file.number("llama.rope.freq_base", 10000.0),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "vocab_size": file.tensors["token_embd.weight"].dims[1],
    }


def weights(file: GgufFile) -> dict[str, NDArray[np.uint16]]:
    """Return each weight under its name in `transformers`, (rows, columns) or (columns,), as bfloat16's bits."""
    heads = {
        "attn_q": file.integer("llama.attention.head_count"),
        "attn_k": file.integer("llama.attention.head_count_kv", file.integer("llama.attention.head_count")),
    }
    data = file.path.read_bytes()
    found = {}
    for tensor in file.tensors.values():
        values = _float32(data, tensor)
        kind = tensor.name.removesuffix(".weight").split(".")[-1]
        if kind in heads:
            values = unpermuted(values, heads[kind])
        found[hf_name(tensor.name)] = bfloat16(values)
    return found


def hf_name(name: str) -> str:
    """Return the name in `transformers` of a GGUF file's tensor; raises KeyError for one that plain Llama has not."""
    match name.removesuffix(".weight").split("."):
        case ["blk", layer, kind]:
            return f"model.layers.{layer}.{_IN_A_LAYER[kind]}.weight"
        case [kind]:
            return f"{_OUTSIDE[kind]}.weight"
    raise KeyError(name)


def unpermuted(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Return a (heads x dimensions, columns) matrix with each head's halves one after the other, not interleaved."""
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return finite numbers rounded to the nearest, ties to even, as bits."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.uint16]]) -> None:
    """Write bfloat16 tensors (format: github.com/huggingface/safetensors, README)."""
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": values.shape, "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.astype("<u2").tobytes())


def _float32(data: bytes, tensor: GgufTensor) -> NDArray[np.float32]:
    """Return a tensor's values, the contiguous dimension last."""
    raw = data[tensor.offset : tensor.offset + tensor.num_bytes]
    if tensor.type is not TensorType.F32:
        raw = _native.dequantize(tensor_type=tensor.type, columns=math.prod(tensor.dims), data=raw)
    return np.frombuffer(raw, np.float32).reshape(tensor.dims[::-1])


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
