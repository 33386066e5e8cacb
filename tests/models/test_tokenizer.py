import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest, ModelFileError
from headway.models.bpe_kinds import BPE_KINDS, pre_tokenizer
from headway.models.fetch import resolve_model
from headway.models.gguf import read_gguf
from headway.models.gguf_tokenizer import read_gguf_tokenizer
from headway.models.text_split import MAX_PIECE_CHARS, PIECE_CHARS, split_words
from headway.models.tokenizer import Tokenizer
from support.tiny_gguf import ENDOFTEXT, FIRST_BYTE_TOKEN, IM_END, IM_START, tiny_tokenizer

DATA = Path(__file__).parents[1] / "data" / "smollm2"
REFERENCES = DATA / "tokenizer.json"


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    return Tokenizer(read_gguf_tokenizer(tiny_tokenizer()))


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return Tokenizer(read_gguf_tokenizer(read_gguf(resolve_model("smollm2")).metadata))


def changed(**changes: Any) -> Mapping[str, Any]:
    metadata: dict[str, Any] = dict(tiny_tokenizer())
    for key, value in changes.items():
        metadata[f"tokenizer.ggml.{key}"] = value
    return {key: value for key, value in metadata.items() if value is not None}


def byte_ids(text: str) -> list[int]:
    return [FIRST_BYTE_TOKEN + byte for byte in text.encode()]


# The reference


@pytest.mark.model
def test_ids_are_those_of_llama_cpp(smollm2: Tokenizer) -> None:
    cases = json.loads(REFERENCES.read_text())
    assert len(cases) >= 200
    wrong = [case["text"] for case in cases if smollm2.encode(case["text"]) != case["ids"]]
    assert wrong == []


@pytest.mark.model
def test_ids_of_special_strings_as_ordinary_text_are_those_of_llama_cpp(smollm2: Tokenizer) -> None:
    cases = [case for case in json.loads(REFERENCES.read_text()) if "ids_plain" in case]
    assert len(cases) >= 8
    for case in cases:
        assert smollm2.encode(case["text"], parse_special=False) == case["ids_plain"]


@pytest.mark.model
def test_every_reference_decodes_to_its_text(smollm2: Tokenizer) -> None:
    for case in json.loads(REFERENCES.read_text()):
        assert smollm2.decode(case["ids"], skip_special=False) == case["text"]


@pytest.mark.model
def test_the_demo_model_names_its_special_tokens(smollm2: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_ids) == (49152, 1, (0, 2))
    assert smollm2.token_text(smollm2.bos_id) == "<|im_start|>"
    assert [i for i in range(smollm2.vocab_size) if smollm2.is_special(i)] == list(range(17))


@pytest.mark.model
def test_the_accuracy_references_have_our_ids(smollm2: Tokenizer) -> None:
    expected = json.loads((DATA / "accuracy.json").read_text())["source"]["tokens"]
    assert smollm2.encode((DATA / "python_source.txt").read_text())[:2_000] == expected


# Pieces


@pytest.mark.model
def test_a_long_text_has_the_ids_of_the_whole(smollm2: Tokenizer) -> None:
    cases = json.loads(REFERENCES.read_text())
    text = "x ".join(case["text"] for case in cases * 12)
    assert len(text) > 3 * PIECE_CHARS
    whole = smollm2._parts.parsing.encode_batch_fast([text], add_special_tokens=False)[0].ids
    assert smollm2.encode(text) == whole


_MIXED = st.text(st.sampled_from("ab z09 9\n\t '’é日本。,.!<|>_im\u0301"), max_size=60)


@given(text=_MIXED, piece_chars=st.integers(1, 8))
def test_pieces_have_the_ids_of_the_whole(tiny: Tokenizer, text: str, piece_chars: int) -> None:
    splitter = split_words(["<|im_end|>", "im"], lone_digits=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.models.text_split.PIECE_CHARS", piece_chars)
        pieces = list(splitter.split(text))
    assert "".join(pieces) == text
    assert [i for piece in pieces for i in tiny.encode(piece)] == tiny.encode(text)


@pytest.mark.parametrize("kind", ["smollm", "gpt-2", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o"])
@given(text=_MIXED)
def test_a_cut_is_a_boundary_of_words(kind: str, text: str) -> None:
    assert BPE_KINDS[kind].lone_digits == (kind in ("smollm", "qwen2", "qwen35", "tekken"))
    splitter = split_words([], lone_digits=BPE_KINDS[kind].lone_digits)
    words = pre_tokenizer(BPE_KINDS[kind])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.models.text_split.PIECE_CHARS", 1)
        pieces = list(splitter.split(text))
    cut = [word for piece in pieces for word, _ in words.pre_tokenize_str(piece)]
    assert cut == [word for word, _ in words.pre_tokenize_str(text)]


def test_an_endless_word_is_cut_outside_special_tokens() -> None:
    special = "<|im_end|>"
    splitter = split_words([special], lone_digits=True)
    pieces = list(splitter.split("!" * 7 + special * (2 * MAX_PIECE_CHARS // len(special))))
    assert len(pieces) == 3
    assert all(len(piece) <= MAX_PIECE_CHARS for piece in pieces)
    assert all(piece.startswith(special) for piece in pieces[1:])


def test_ordinary_text_and_digits_come_in_small_pieces() -> None:
    splitter = split_words(["<|im_start|>", "<|endoftext|>"], lone_digits=True)
    for text in ("some words, " * 10_000, "0123456789" * 10_000, "日本語。" * 20_000):
        assert max(map(len, splitter.split(text))) < PIECE_CHARS + 20


# Other threads


@pytest.mark.model
def test_other_threads_run_while_one_word_is_encoded(smollm2: Tokenizer) -> None:
    text = "a" * 200_000  # one piece, one call into the package
    shares = []
    for _ in range(5):  # a busy machine may hold this thread up for reasons of its own
        worker = threading.Thread(target=smollm2.encode, args=(text,))
        start = last = time.monotonic()
        longest = 0.0
        worker.start()
        while worker.is_alive():
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        shares.append(longest / (time.monotonic() - start))
        if shares[-1] < 0.6:
            return
    pytest.fail(f"this thread stood still for these shares of the call: {shares}")


# Vocabulary and bytes


def test_special_tokens_are_never_split(tiny: Tokenizer) -> None:
    assert tiny.encode("<|im_start|>a<|im_end|>") == [IM_START, *byte_ids("a"), IM_END]
    assert tiny.encode("<|im_end|>", parse_special=False) == byte_ids("<|im_end|>")


def test_tokens_that_the_file_calls_user_defined_are_found_in_any_text() -> None:
    types = list(tiny_tokenizer()["tokenizer.ggml.token_type"])  # type: ignore[arg-type]
    types[IM_END] = 4
    tokenizer = Tokenizer(read_gguf_tokenizer(changed(token_type=types)))
    assert tokenizer.encode("<|im_end|><|im_start|>", parse_special=False) == [
        IM_END,
        *byte_ids("<|im_start|>"),
    ]
    assert tokenizer.decode([IM_END]) == "<|im_end|>"


def test_every_byte_has_a_token(tiny: Tokenizer) -> None:
    assert [tiny.token_bytes(FIRST_BYTE_TOKEN + byte) for byte in range(256)] == [
        bytes([byte]) for byte in range(256)
    ]


@given(text=st.text(max_size=80))
def test_decoding_gives_the_text_back(tiny: Tokenizer, text: str) -> None:
    assert tiny.decode(tiny.encode(text, parse_special=False)) == text


def test_special_tokens_are_left_out_of_an_answer_but_have_a_name(tiny: Tokenizer) -> None:
    assert tiny.decode([IM_START, *byte_ids("a"), IM_END]) == "a"
    assert tiny.token_bytes(IM_END) == b"<|im_end|>"


def test_bytes_that_are_no_character_are_replaced(tiny: Tokenizer) -> None:
    assert tiny.decode([FIRST_BYTE_TOKEN + 0xFF]) == "\ufffd"


def test_an_id_outside_the_vocabulary_is_an_error(tiny: Tokenizer) -> None:
    for token_id in (-1, tiny.vocab_size):
        with pytest.raises(IndexError):
            tiny.token_bytes(token_id)


def test_lone_surrogates_are_the_callers_mistake(tiny: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="character 2"):
        tiny.encode("ab\ud800")


def test_bos_is_added_once_and_only_if_the_file_says_so(tiny: Tokenizer) -> None:
    adding = Tokenizer(read_gguf_tokenizer(changed(add_bos_token=True)))
    assert tiny.encode("a") == byte_ids("a")
    assert adding.encode("a") == [IM_START, *byte_ids("a")]
    assert adding.encode("<|im_start|>a") == [IM_START, *byte_ids("a")]
    assert adding.encode("a", add_bos=False) == byte_ids("a")
    assert adding.encode("<|im_start|><|im_start|>", add_bos=False) == [IM_START, IM_START]
    assert adding.encode("") == [IM_START]


def test_a_prompt_that_is_too_long_anyway_can_stop_early(tiny: Tokenizer) -> None:
    text = "some words " * 100_000
    assert 10 < len(tiny.encode(text, max_tokens=10)) <= PIECE_CHARS + 20
    assert tiny.encode("hello", max_tokens=1) == tiny.encode("hello")


@given(text=st.text(max_size=80))
def test_the_lower_bound_holds(tiny: Tokenizer, text: str) -> None:
    assert tiny.min_num_tokens(text) <= len(tiny.encode(text))


def test_all_tokens_that_end_a_turn_end_an_answer(tiny: Tokenizer) -> None:
    assert tiny.eos_ids == (ENDOFTEXT, IM_END)
    assert Tokenizer(read_gguf_tokenizer(changed(eot_token_id=7))).eos_ids == (ENDOFTEXT, IM_END, 7)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("smollm", ["I", "'m", " ", "1", "2", " ok", "!?", "\n\n", "\n", "x"]),
        ("gpt-2", ["I", "'m", " 12", " ok", "!?", "\n\n", "\n", "x"]),
        ("llama-bpe", ["I", "'m", " ", "12", " ok", "!?\n\n\n", "x"]),
        ("qwen2", ["I", "'m", " ", "1", "2", " ok", "!?\n\n\n", "x"]),
        ("tekken", ["I", "'m", " ", "1", "2", " ok", "!?\n\n\n", "x"]),
        ("gpt-4o", ["I'm", " ", "12", " ok", "!?\n\n\n", "x"]),
    ],
)
def test_words_of_each_kind(kind: str, words: list[str]) -> None:
    found = [word for word, _ in pre_tokenizer(BPE_KINDS[kind]).pre_tokenize_str("I'm 12 ok!?\n\n\nx")]
    assert [word.replace("Ġ", " ").replace("Ċ", "\n") for word in found] == words


# Files that we cannot use


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "t5"}, "model 't5' is not supported"),
        ({"model": "llama"}, "tokenizer.ggml.scores"),
        ({"model": None}, "model None"),
        ({"pre": "falcon"}, "pre-tokenizer 'falcon' is not supported; supported are smollm"),
        ({"pre": None}, "pre-tokenizer None"),
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens"),
        ({"tokens": ["a", "a"], "token_type": None}, "twice"),
        ({"merges": []}, "tokenizer.ggml.merges"),
        ({"merges": ["ab"]}, "merge 'ab'"),
        ({"merges": ["he llo"]}, "do not fit"),
        ({"token_type": [1]}, "differ in length"),
        ({"token_type": 3}, "differ in length"),
        ({"eos_token_id": 320}, "eos_token_id is 320"),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason):
        Tokenizer(read_gguf_tokenizer(changed(**changes)))
