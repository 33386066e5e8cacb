"""Writes the valid inputs that a target starts from: `python fuzz/seeds.py TARGET FOLDER`.

They are the tests' tiny models and requests without their tensors' data, which no entrance reads.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headway.core.plan import TensorType
from support.checkpoint_cases import CASES
from support.checkpoint_folder import encode_safetensors
from support.checkpoint_gguf import gguf_metadata, gguf_tensors, storage_type
from support.checkpoint_weights import F32Array, make_weights
from support.ggml_blocks import encode
from support.gguf_writer import TensorInput, encode_gguf
from support.tiny_gguf import tiny_tokenizer, write_tiny_gguf

EXTENDED, WHOLE = b"\xff", b"\x00"
"""First bytes of inputs: what a header needs behind it is added, or the input is all there is."""

TOKENIZERS = Path(__file__).parents[1] / "tests" / "data" / "tokenizers"

_SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
BODIES = (
    {"model": "m", "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "\u00e9"}]},
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"}],
     "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": _SCHEMA}}],
     "tool_choice": "auto", "parallel_tool_calls": True, "user": "u"},
    {"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {
        "name": "n", "schema": _SCHEMA, "strict": True}},
     "stream": True, "stream_options": {"include_usage": True}, "n": 2, "max_tokens": 8, "temperature": 0.5,
     "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "stop": ["\n"], "logprobs": True, "top_logprobs": 2,
     "presence_penalty": 0.1, "frequency_penalty": -0.1, "logit_bias": {"5": -1.5}},
    {"model": "m", "prompt": "a", "suffix": "b", "echo": False, "logprobs": 2, "best_of": 1, "stop": "x"},
    {"prompt": ["a", "b"], "n": 2, "max_tokens": 1, "guided_regex": "a+"},
    {"prompt": [[1, 2], [3]], "guided_json": _SCHEMA, "guided_choice": ["a", "b"]},
    {"prompt": [1, 2, 3], "structured_outputs": {"grammar": 'start: "a"'}, "temperature": 1e-3},
    {"model": "m", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 3},
    {"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "s"}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "2"}]}],
     "tools": [{"name": "f", "description": "d", "input_schema": _SCHEMA}], "tool_choice": {"type": "any"},
     "stop_sequences": ["x"], "metadata": {"user_id": "u"}, "thinking": {"type": "disabled"}},
    {"model": "m", "instructions": "i", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"}],
     "tools": [{"type": "function", "name": "f", "description": "d", "parameters": _SCHEMA, "strict": False}],
     "tool_choice": "auto", "text": {"format": {"type": "json_schema", "name": "n", "schema": _SCHEMA}},
     "max_output_tokens": 5, "store": False, "stream": True},
    {"model": "m", "tokens": [1, 2, 3], "content": "a", "add_special_tokens": True},
)  # fmt: skip


def gguf() -> Iterator[bytes]:
    for case in CASES:
        weights = sorted(gguf_tensors(case.config, make_weights(case)), key=_is_not_rotation)
        metadata = {
            key: value
            for key, value in gguf_metadata(case.config).items()
            if not key.startswith("tokenizer.")
        }
        tensors: list[TensorInput] = []
        at = 0
        for name, values in weights:
            kind = storage_type(case, name, values)
            data = encode(values, kind)
            kept = b"" if _is_not_rotation((name, values)) else data
            tensors.append(TensorInput(name, values.shape[::-1], kind, kept, offset=at))
            at += -(-len(data) // 32) * 32
        yield EXTENDED + encode_gguf(metadata, tensors)


def _is_not_rotation(item: tuple[str, F32Array]) -> bool:
    """Whether nobody reads the tensor's data before the model is loaded."""
    return not item[0].startswith("rope_")


def text() -> Iterator[bytes]:
    for name in ("spm_gemma", "spm_llama"):
        parts = json.loads((TOKENIZERS / f"{name}.json").read_text())
        metadata = {
            "general.architecture": "llama",
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": parts["tokens"],
            "tokenizer.ggml.scores": parts["scores"],
            "tokenizer.ggml.token_type": parts["types"],
            "tokenizer.ggml.add_space_prefix": parts["space_prefix"],
            "tokenizer.ggml.bos_token_id": 2 if name == "spm_gemma" else 1,
            "tokenizer.ggml.eos_token_id": 1 if name == "spm_gemma" else 2,
        }
        yield WHOLE + encode_gguf(metadata)
    yield WHOLE + encode_gguf({"general.architecture": "llama", **tiny_tokenizer(300)})
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.gguf"
        write_tiny_gguf(path, layers=1, hidden=32, heads=2, kv_heads=1, ffn=32)
        yield WHOLE + path.read_bytes()


def tokenizer() -> Iterator[bytes]:
    for folder in sorted(TOKENIZERS.glob("hf_*")):
        config = (folder / "tokenizer_config.json").read_bytes()
        yield len(config).to_bytes(2, "little") + config + (folder / "tokenizer.json").read_bytes()


def safetensors() -> Iterator[bytes]:
    for case in CASES:
        config = json.dumps(case.config, default=dict).encode()
        weights = encode_safetensors(make_weights(case), TensorType[case.dtype])
        header = weights[8 : 8 + int.from_bytes(weights[:8], "little")]
        yield EXTENDED + len(config).to_bytes(2, "little") + config + header
    yield WHOLE + len(config).to_bytes(2, "little") + config + weights[:4096]


def json_bodies() -> Iterator[bytes]:
    for body in BODIES:
        for first in range(8):  # whichever endpoint it is for
            yield bytes([first]) + json.dumps(body).encode()


def streams() -> Iterator[bytes]:
    yield b"\x00\x80id: a.1.2\nevent: e\ndata: {}\ndata\n\n: ping\nretry: 10\r\n\r\nid\n\nerror: x\n\n"
    yield b"\x00\x10\xef\xbb\xbfdata: a\r\rid: b\x00\n\n"
    yield b"\x01" + b"0123456789abcdef" * 2 + b".1.17"
    yield b"\x022.17"
    yield b'\x03{"seq":17,"epoch":1}'
    yield b'\x04{"type":"ack","epoch":1,"seq":17}'
    yield b'\x04{"type":"heartbeat","ms":1700000000000,"ack":{"epoch":1,"seq":17}}'
    yield b'\x05{"type":"event","epoch":1,"seq":2,"kind":"content","data":"{}","name":"e","last":true}'
    yield b'\x05{"type":"heartbeat","ms":5}'
    yield b'\x05{"type":"error","error":{"message":"m","type":"t","param":null,"code":"c"}}'


def main(target: str, folder: Path) -> None:
    makers = {
        "gguf": gguf,
        "json": json_bodies,
        "safetensors": safetensors,
        "streams": streams,
        "text": text,
        "tokenizer": tokenizer,
    }
    for number, data in enumerate(makers[target]()):
        (folder / f"{number:03}").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
