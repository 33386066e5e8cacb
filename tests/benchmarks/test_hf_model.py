"""The folder that is made of the demo model's file holds the same model: shape, weights, tokens, prompts."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from headway.core.plan import TensorType
from headway.models.architectures import open_plan
from headway.models.text_side import open_text
from support.tiny_gguf import TinyModel, write_tiny_gguf

hf_model = pytest.importorskip("endpoints.hf_model", reason="it needs the native core")
pytestmark = pytest.mark.native

TEXT = "def f(x):\n    return x + 12345  # naïve, 日本<|im_end|>"
MESSAGES = [{"role": "user", "content": TEXT}]


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    return write_tiny_gguf(tmp_path / "tiny.gguf", tensor_type=TensorType.Q4_1)


@pytest.fixture
def folder(tiny: TinyModel, tmp_path: Path) -> Path:
    return Path(hf_model.ensure_hf_model(tiny.path, tmp_path / "hf"))


def read_weights(folder: Path) -> Mapping[str, NDArray[np.float32]]:
    """Return the folder's weights as float32."""
    data = (folder / "model.safetensors").read_bytes()
    (length,) = np.frombuffer(data[:8], "<u8")
    header, start = json.loads(data[8 : 8 + length]), 8 + int(length)
    found = {}
    for name, told in header.items():
        if name != "__metadata__":
            begin, end = told["data_offsets"]
            bits = np.frombuffer(data[start + begin : start + end], "<u2").astype(np.uint32) << 16
            found[name] = bits.view(np.float32).reshape(told["shape"])
    return found


def test_headway_reads_the_same_shape(tiny: TinyModel, folder: Path) -> None:
    of_file, of_folder = open_plan(tiny.path).shape, open_plan(folder).shape
    assert [rope.interleaved for rope in of_file.ropes + of_folder.ropes] == [True, False]
    ropes = tuple(replace(rope, interleaved=True) for rope in of_folder.ropes)
    assert replace(of_folder, ropes=ropes) == of_file


def test_tokens_and_prompts_are_the_same(tiny: TinyModel, folder: Path) -> None:
    of_file, of_folder = open_text(tiny.path), open_text(folder)
    assert of_folder.tokenizer.encode(TEXT) == of_file.tokenizer.encode(TEXT)
    assert of_folder.tokenizer.eos_ids == of_file.tokenizer.eos_ids
    assert of_file.chat_template is not None
    assert of_folder.chat_template is not None
    assert of_folder.chat_template.render(MESSAGES) == of_file.chat_template.render(MESSAGES)


def test_weights_are_the_file_s_rounded(tiny: TinyModel, folder: Path) -> None:
    found = read_weights(folder)
    assert len(found) == len(tiny.weights)
    for name, values in tiny.weights.items():
        if "attn_q" not in name and "attn_k" not in name:
            np.testing.assert_allclose(found[hf_model.hf_name(name)], values, rtol=2**-8)


def test_queries_and_keys_are_turned_back(tiny: TinyModel, folder: Path) -> None:
    """llama.cpp's files interleave the halves of a head: row 2i is the i-th of the first half, 2i + 1 of the second."""
    stored = tiny.weights["blk.0.attn_k.weight"]
    found = read_weights(folder)["model.layers.0.self_attn.k_proj.weight"]
    head_dim = 16
    for head in range(stored.shape[0] // head_dim):
        rows = slice(head * head_dim, (head + 1) * head_dim)
        np.testing.assert_allclose(found[rows][: head_dim // 2], stored[rows][0::2], rtol=2**-8)
        np.testing.assert_allclose(found[rows][head_dim // 2 :], stored[rows][1::2], rtol=2**-8)


def test_numbers_are_rounded_to_the_nearest() -> None:
    values = np.array([1.0, -1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 0.0], np.float32)
    bits = hf_model.bfloat16(values).astype(np.uint32) << 16
    assert bits.view(np.float32).tolist() == [1.0, -1.0, 1.0, 1 + 2**-6, 1 + 2**-7, 0.0]


def test_a_folder_is_made_anew_only_for_another_file(tiny: TinyModel, folder: Path) -> None:
    made = (folder / "model.safetensors").stat().st_mtime_ns
    hf_model.ensure_hf_model(tiny.path, folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    other = write_tiny_gguf(tiny.path.with_name("other.gguf"), tensor_type=TensorType.Q8_0)
    hf_model.ensure_hf_model(other.path, folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns != made


def test_a_tensor_that_plain_llama_has_not_is_refused() -> None:
    with pytest.raises(KeyError):
        hf_model.hf_name("blk.0.attn_q_norm.weight")
