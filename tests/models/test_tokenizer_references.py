"""Ids of public implementations (scripts/make_tiny_tokenizers.py) with tiny vocabularies, on 200 strings."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.models.gguf_tokenizer import read_gguf_tokenizer
from headway.models.text_side import open_text
from headway.models.tokenizer import Tokenizer

DATA = Path(__file__).parents[1] / "data" / "tokenizers"
KINDS = ["gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "qwen35", "tekken", "gpt-4o"]
FOLDERS = ["hf_qwen2", "hf_llama", "hf_gemma"]
SPECIAL_IDS = {"llama": {"unknown": 0, "bos": 1, "eos": 2}, "gemma": {"eos": 1, "bos": 2, "unknown": 3}}


@cache
def read(name: str) -> Any:
    return json.loads((DATA / name).read_text())


@cache
def byte_level(kind: str) -> Tokenizer:
    data = read("byte_level.json")
    num_ordinary = len(data["tokens"]) - data["special"]
    return Tokenizer(
        read_gguf_tokenizer(
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.pre": kind,
                "tokenizer.ggml.tokens": data["tokens"],
                "tokenizer.ggml.token_type": [3] * data["special"] + [1] * num_ordinary,
                "tokenizer.ggml.merges": data["merges"],
            }
        )
    )


@cache
def spm(name: str) -> Tokenizer:
    data = read(f"spm_{name}.json")
    ids = {f"tokenizer.ggml.{role}_token_id": value for role, value in SPECIAL_IDS[name].items()}
    return Tokenizer(
        read_gguf_tokenizer(
            {
                "tokenizer.ggml.model": "llama",
                "tokenizer.ggml.tokens": data["tokens"],
                "tokenizer.ggml.scores": data["scores"],
                "tokenizer.ggml.token_type": data["types"],
                "tokenizer.ggml.add_space_prefix": data["space_prefix"],
                **ids,
            }
        )
    )


@cache
def folder(name: str) -> Tokenizer:
    return open_text(DATA / name).tokenizer


def encode_in_pieces(tokenizer: Tokenizer, text: str, piece_chars: int) -> list[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.models.text_split.PIECE_CHARS", piece_chars)
        return tokenizer.encode(text)


@pytest.mark.parametrize("kind", KINDS)
def test_byte_level_ids_are_those_of_tokenizers(kind: str) -> None:
    texts, expected = read("strings.json"), read("byte_level.json")["ids"]
    assert len(texts) >= 200
    wrong = [
        text
        for text, ids, same in zip(texts, expected[kind], expected["gpt-2"], strict=True)
        if byte_level(kind).encode(text) != (same if ids is None else ids)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_spm_ids_are_those_of_sentencepiece(name: str) -> None:
    texts, expected = read("strings.json"), read(f"spm_{name}.json")["ids"]
    tokenizer = spm(name)
    wrong = [
        text
        for text, ids in zip(texts, expected, strict=True)
        if tokenizer.encode(text, parse_special=False, add_bos=False) != ids or tokenizer.decode(ids) != text
    ]
    assert wrong == []


@pytest.mark.parametrize("name", FOLDERS)
def test_ids_of_a_folder_are_those_of_transformers(name: str) -> None:
    texts, expected = read("strings.json"), read(f"{name}/ids.json")
    wrong = [text for text, ids in zip(texts, expected, strict=True) if folder(name).encode(text) != ids]
    assert wrong == []


@pytest.mark.parametrize("tokenizer", [*(folder(name) for name in FOLDERS), spm("llama"), spm("gemma")])
@given(
    text=st.text(st.sampled_from("abe  \n\t\u2581re.,\u3002\u65e5e\u0301'9<s>/table"), max_size=60),
    piece_chars=st.integers(1, 8),
)
@example(
    text="9 \u2581", piece_chars=1
)  # no space goes before a text that begins with one, under whatever name
def test_pieces_have_the_ids_of_the_whole(tokenizer: Tokenizer, text: str, piece_chars: int) -> None:
    assert encode_in_pieces(tokenizer, text, piece_chars) == tokenizer.encode(text)


@pytest.mark.parametrize(
    "tokenizer", [byte_level("tekken"), *(folder(name) for name in FOLDERS), spm("llama"), spm("gemma")]
)
def test_ordinary_text_is_cut(tokenizer: Tokenizer) -> None:
    text = "Some words, and more. " * 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.models.text_split.PIECE_CHARS", 40)
        assert len(list(tokenizer._parts.splitter.split(text))) > 5
    assert encode_in_pieces(tokenizer, text, 40) == tokenizer.encode(text)


@pytest.mark.parametrize("tokenizer", [byte_level("qwen2"), folder("hf_gemma"), spm("llama"), spm("gemma")])
@given(text=st.text(max_size=60).filter(lambda text: "\u2581" not in text))
def test_the_bytes_of_all_tokens_are_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, parse_special=False, add_bos=False)
    assert tokenizer.min_num_tokens(text) <= len(ids)
    found = b"".join(map(tokenizer.token_bytes, ids)).decode()
    assert found == (" " + text if text and tokenizer is spm("llama") else text)
    assert tokenizer.decode(ids) == text
