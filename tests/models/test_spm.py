from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest, ModelFileError
from headway.models.detokenizer import Detokenizer
from headway.models.gguf_tokenizer import read_gguf_tokenizer
from headway.models.tokenizer import Tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
CONTROL = ["<unk>", "<s>", "</s>"]
UNKNOWN, BOS, EOS = 0, 1, 2


def metadata(ordinary: dict[str, float], **changes: Any) -> dict[str, Any]:
    """A vocabulary of control tokens, `ordinary` ones with their scores, and bytes."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*CONTROL, *ordinary, *BYTES],
        "tokenizer.ggml.scores": [0.0] * 3 + [*ordinary.values()] + [0.0] * 256,
        "tokenizer.ggml.token_type": [2, 3, 3] + [1] * len(ordinary) + [6] * 256,
        **{f"tokenizer.ggml.{key}": value for key, value in changes.items() if "." not in key},
        **{key: value for key, value in changes.items() if "." in key},
    }


LETTERS = {"\u2581": -100.0, "a": -101.0, "b": -102.0, "c": -103.0}


def names(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(index) for index in ids]


def merged_by_hand(text: str, score_of: dict[str, float]) -> list[str]:
    """SentencePiece's rule, literally: join the best-scored neighbours, the leftmost of equals, until none are left."""
    symbols = list(text)
    while True:
        found = [
            (-score_of[left + right], index)
            for index, (left, right) in enumerate(pairwise(symbols))
            if left + right in score_of
        ]
        if not found:
            return symbols
        _, index = min(found)
        symbols[index : index + 2] = [symbols[index] + symbols[index + 1]]


_TOKENS = st.text(st.sampled_from("abc\u2581"), min_size=2, max_size=4)


@given(
    made=st.lists(_TOKENS, max_size=12, unique=True),
    text=st.text(st.sampled_from("abc "), max_size=24),
    order=st.randoms(use_true_random=False),
)
def test_merging_is_sentencepieces_with_any_scores(made: list[str], text: str, order: Any) -> None:
    scores = list(range(len(made)))
    order.shuffle(scores)
    vocabulary = LETTERS | {token: -float(score) for token, score in zip(made, scores, strict=True)}
    tokenizer = Tokenizer(read_gguf_tokenizer(metadata(vocabulary, add_space_prefix=False)))
    ids = tokenizer.encode(text, add_bos=False)
    assert names(tokenizer, ids) == merged_by_hand(text.replace(" ", "\u2581"), vocabulary)


@given(
    longest=st.integers(2, 6),
    made=st.lists(_TOKENS.filter(lambda token: set(token) != {"\u2581"}), max_size=6, unique=True),
    text=st.text(st.sampled_from("ab  "), max_size=24),
)
def test_runs_with_one_score_grow_from_the_left(longest: int, made: list[str], text: str) -> None:
    vocabulary = LETTERS | {token: -1.0 - index for index, token in enumerate(made)}
    vocabulary |= {"\u2581" * length: -1e9 for length in range(2, longest + 1)}
    tokenizer = Tokenizer(read_gguf_tokenizer(metadata(vocabulary, add_space_prefix=False)))
    ids = tokenizer.encode(text, add_bos=False)
    assert names(tokenizer, ids) == merged_by_hand(text.replace(" ", "\u2581"), vocabulary)


def test_other_equal_scores_are_refused_unless_they_never_merge() -> None:
    with pytest.raises(ModelFileError, match="'ab' and 'bc' have the same score"):
        Tokenizer(read_gguf_tokenizer(metadata(LETTERS | {"ab": -1.0, "bc": -1.0})))
    with pytest.raises(ModelFileError, match="gaps"):
        Tokenizer(read_gguf_tokenizer(metadata(LETTERS | {"aa": -1.0, "aaaa": -1.0})))
    unmade = Tokenizer(read_gguf_tokenizer(metadata(LETTERS | {"xyz": -1.0, "uvw": -1.0, "ab": -1.0})))
    assert names(unmade, unmade.encode("ab", add_bos=False)) == ["\u2581", "ab"]


def test_a_space_goes_before_a_text_and_after_special_tokens() -> None:
    tokenizer = Tokenizer(read_gguf_tokenizer(metadata(LETTERS | {"\u2581a": -1.0})))
    assert names(tokenizer, tokenizer.encode("a</s>a b")) == [
        "<s>",
        "\u2581a",
        "</s>",
        "\u2581a",
        "\u2581",
        "b",
    ]
    assert names(tokenizer, tokenizer.encode(" a")) == ["<s>", "\u2581", "\u2581a"]
    assert tokenizer.encode("") == [BOS]
    assert tokenizer.decode(tokenizer.encode("a b")) == "a b"
    assert tokenizer.decode(tokenizer.encode(" a")) == " a"
    assert tokenizer.decode([BOS, *tokenizer.encode("a", add_bos=False)], skip_special=False) == "<s>a"


def test_an_answers_first_space_is_part_of_the_answer() -> None:
    tokenizer = Tokenizer(read_gguf_tokenizer(metadata(LETTERS | {"\u2581a": -1.0})))
    (answer,) = tokenizer.encode("a", add_bos=False)
    assert tokenizer.token_bytes(answer) == b" a"
    prompt = tokenizer.encode("b")
    assert tokenizer.decode([*prompt, answer]) == tokenizer.decode(prompt) + " a"


def test_text_inside_another_gets_no_space_and_no_special_tokens() -> None:
    tokenizer = Tokenizer(
        read_gguf_tokenizer(metadata(LETTERS | {"\u2581a": -1.0} | dict.fromkeys("</s>", -9.0)))
    )
    assert names(tokenizer, tokenizer.encode_continuation("a a</s>")) == ["a", "\u2581a", "<", "/", "s", ">"]
    with pytest.raises(InvalidRequest, match="lone surrogate"):
        tokenizer.encode_continuation("\ud800")


def test_bytes_of_one_character_become_text_together() -> None:
    tokenizer = Tokenizer(read_gguf_tokenizer(metadata(LETTERS)))
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode("a\u00e9", add_bos=False)
    assert [detokenizer.push(index) for index in ids] == [" ", "a", "", "\u00e9"]


def test_characters_without_a_token_are_spelled_in_bytes() -> None:
    tokenizer = Tokenizer(read_gguf_tokenizer(metadata(LETTERS, add_space_prefix=False, add_bos_token=False)))
    ids = tokenizer.encode("a\n\u00e9")
    assert names(tokenizer, ids) == ["a", "<0x0A>", "<0xC3>", "<0xA9>"]
    assert [tokenizer.token_bytes(index) for index in ids] == [b"a", b"\n", b"\xc3", b"\xa9"]


def test_no_text_adds_up_to_a_control_or_byte_token() -> None:
    spelled = {char: -10.0 - index for index, char in enumerate("<s>0xA")} | {
        "<s": -1.0,
        "0x": -2.0,
        "<0x": -3.0,
    }
    tokenizer = Tokenizer(
        read_gguf_tokenizer(metadata(LETTERS | spelled | {"<0x0": -4.0, "A>": -5.0}, add_space_prefix=False))
    )
    assert BOS not in tokenizer.encode("<s>", parse_special=False, add_bos=False)
    assert names(tokenizer, tokenizer.encode("<0x0A>", add_bos=False)) == ["<0x0", "A>"]


def test_user_defined_tokens_come_first_and_phi_3s_swallow_white_space() -> None:
    types = [2, 3, 4] + [1] * len(LETTERS) + [6] * 256
    plain = Tokenizer(read_gguf_tokenizer(metadata(LETTERS, token_type=types, add_space_prefix=False)))
    assert plain.encode("a</s> b", parse_special=False) == plain.encode("a</s> b")
    assert names(plain, plain.encode("a</s> b", add_bos=False)) == ["a", "</s>", "\u2581", "b"]
    phi = Tokenizer(
        read_gguf_tokenizer(metadata(LETTERS, **{"general.name": "Phi-3 mini", "add_space_prefix": False}))
    )
    assert names(phi, phi.encode("</s> \n b<s> b", add_bos=False)) == ["</s>", "b", "<s>", "\u2581", "b"]
    assert phi.min_num_tokens(" " * 1000) == 0


def test_a_text_may_end_with_the_end_token() -> None:
    tokenizer = Tokenizer(read_gguf_tokenizer(metadata(LETTERS, add_eos_token=True, add_space_prefix=False)))
    assert names(tokenizer, tokenizer.encode("a")) == ["<s>", "a", "</s>"]
    assert tokenizer.encode("a", add_bos=False) == [4]
    assert tokenizer.eos_ids == (EOS,)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scores": None}, "scores is missing"),
        ({"scores": [0.0]}, "scores is missing"),
        ({"remove_extra_whitespaces": True}, "removes white space"),
        ({"tokens": [*CONTROL, *LETTERS, *BYTES[:-1], "x"]}, "no token <0xFF>"),
        ({"scores": [float("nan")] * (3 + len(LETTERS) + 256)}, "no number"),
        ({"tokens": [*CONTROL, "a" * 40_000, "a", "b", "c", *BYTES]}, "too long"),
        ({"tokens": [*CONTROL, "a", "a", "b", "c", *BYTES]}, "twice"),
    ],
)
def test_vocabularies_that_cannot_be_used_are_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason):
        Tokenizer(read_gguf_tokenizer(metadata(LETTERS, **changes)))
