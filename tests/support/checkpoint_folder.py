"""Writes a tiny checkpoint as a Hugging Face folder: configuration, weights as safetensors, tokenizer.

Formats: the safetensors README (a little-endian length, a JSON header, the data), the index of sharded checkpoints of
`transformers`, and the JSON of the `tokenizers` package.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.core.plan import TensorType
from support.checkpoint_case import Case, Config
from support.checkpoint_weights import F32Array
from support.ggml_blocks import encode
from support.tiny_gguf import CHAT_TEMPLATE, MERGES, SPECIAL_TOKENS, byte_symbols


def write_folder(
    path: Path, case: Case, weights: Mapping[str, F32Array], *, config: Config | None = None
) -> Path:
    """Write `case` into the new folder `path` and return it; `config` replaces the case's own."""
    path.mkdir()
    write_json(path / "config.json", dict(case.config if config is None else config))
    write_weights(path, weights, TensorType[case.dtype], num_shards=case.num_shards)
    write_json(path / "tokenizer.json", _tokenizer(case.config["vocab_size"]))
    write_json(
        path / "tokenizer_config.json",
        {
            "bos_token": SPECIAL_TOKENS[1],
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": SPECIAL_TOKENS[2],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    return path


def write_weights(
    path: Path, weights: Mapping[str, F32Array], kind: TensorType, *, num_shards: int = 1
) -> None:
    """Write safetensors into the folder `path`: one file, or `num_shards` of them with an index."""
    if num_shards == 1:
        (path / "model.safetensors").write_bytes(encode_safetensors(weights, kind))
        return
    names, where = list(weights), dict[str, str]()
    for shard in range(num_shards):
        part = names[shard::num_shards]  # a layer's tensors lie in different files
        file = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        (path / file).write_bytes(encode_safetensors({name: weights[name] for name in part}, kind))
        where |= dict.fromkeys(part, file)
    total = sum(len(encode(values, kind)) for values in weights.values())
    write_json(
        path / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where}
    )


def encode_safetensors(weights: Mapping[str, F32Array], kind: TensorType) -> bytes:
    """Return a safetensors file whose tensors are all of `kind`: F32, F16 or BF16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, values in weights.items():
        data = encode(values, kind)
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": kind.name, "shape": list(values.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` as `transformers` does: indented by two, keys in order."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def _tokenizer(vocab_size: int) -> dict[str, Any]:
    """Return tokenizer.json: the bytes, the merges and the special tokens of `tiny_gguf`, padded to `vocab_size`."""
    tokens = [*SPECIAL_TOKENS, *byte_symbols(), *(merge.replace(" ", "") for merge in MERGES)]
    tokens += [f"[PAD{index}]" for index in range(len(tokens), vocab_size)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}  # "smollm", the kind of `tiny_gguf`, cuts them so
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": text, **flags} for index, text in enumerate(SPECIAL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in MERGES],
        },
    }
