"""What an API token is made of, and that nothing else is taken for one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from headway.access.api_token import (
    DIGEST_BYTES,
    digest_of,
    is_public_id,
    is_token,
    looks_like_token,
    make_public_id,
    make_token,
)
from headway.core.secret import Secret
from support.memory_tokens import SERVER_KEY


def test_a_token_is_its_prefix_and_32_random_bytes() -> None:
    token = make_token(lambda num_bytes: bytes(range(num_bytes)))
    assert token.reveal() == "hw_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert is_token(token)


def test_its_public_id_is_drawn_for_itself() -> None:
    asked: list[int] = []

    def drawn(num_bytes: int) -> bytes:
        asked.append(num_bytes)
        return bytes([len(asked)]) * num_bytes

    make_token(drawn)
    assert make_public_id(drawn) == "tok_020202020202"
    assert asked == [32, 6]


@given(st.binary(min_size=32, max_size=32))
def test_every_token_that_is_made_is_taken(drawn: bytes) -> None:
    assert is_token(make_token(lambda _: drawn))


@given(st.binary(min_size=32, max_size=32), st.integers(0, 45), st.characters(codec="utf-8"))
def test_a_token_with_one_other_character_is_another_token_or_none(
    drawn: bytes, place: int, other: str
) -> None:
    text = make_token(lambda _: drawn).reveal()
    changed = Secret(text[:place] + other + text[place + 1 :])
    if is_token(changed) and changed.reveal() != text:
        assert digest_of(SERVER_KEY, changed) != digest_of(SERVER_KEY, Secret(text))
    assert is_token(changed) == (
        re.fullmatch(r"hw_[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]", changed.reveal()) is not None
    )


@given(st.one_of(st.text(max_size=60), st.from_regex(r"hw_[A-Za-z0-9_-]{0,60}", fullmatch=True)))
def test_what_has_another_length_or_alphabet_is_none(text: str) -> None:
    if len(text) != 46 or not text.isascii() or not text.startswith("hw_"):
        assert not is_token(Secret(text))


def test_the_last_characters_spare_bits_are_no_second_name() -> None:
    text = make_token(bytes).reveal()
    assert text.endswith("A")
    assert not is_token(Secret(text[:-1] + "B"))  # decodes to the same bytes
    assert not is_token(Secret(text + "="))
    assert not is_token(Secret(text + "\n"))


def test_a_wrong_one_still_looks_like_one() -> None:
    assert looks_like_token(Secret("hw_"))
    assert not looks_like_token(Secret("eyJhbGciOiJub25lIn0.e30."))


def test_a_digest_is_an_hmac_of_the_whole_token_under_the_servers_key() -> None:
    # Of RFC 4231's construction, computed with OpenSSL 3.0.19: `openssl mac -digest SHA256 -macopt hexkey:… HMAC`.
    token = make_token(lambda num_bytes: bytes(range(num_bytes)))
    digest = digest_of(SERVER_KEY, token)
    assert len(digest) == DIGEST_BYTES
    assert digest.hex() == "602f82aed7797a8f8c1daa8b5146de411cfd185d0eba7cd3ead0516306579a53"
    assert digest_of(bytes(32), token) != digest


def test_public_ids() -> None:
    assert is_public_id("tok_0123456789ab")
    assert not is_public_id("tok_0123456789AB")
    assert not is_public_id("tok_0123456789ab0")
    assert not is_public_id("jwt_0123456789ab")
