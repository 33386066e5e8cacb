import contextlib
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest, StreamNotFound
from headway.streams.ids import (
    MAX_NUMBER,
    Cursor,
    check_stream_id,
    event_id,
    new_stream_id,
    parse_after,
    parse_event_id,
)

STREAM = "0123456789abcdef" * 2


def test_an_id_is_128_bits_of_the_source_it_was_given() -> None:
    assert new_stream_id(lambda n: bytes(range(n))) == "000102030405060708090a0b0c0d0e0f"
    assert check_stream_id(new_stream_id(secrets.token_bytes))


@given(st.binary(min_size=16, max_size=16), st.integers(1, MAX_NUMBER), st.integers(0, MAX_NUMBER))
def test_an_event_id_comes_back_as_it_was(random: bytes, epoch: int, seq: int) -> None:
    stream_id = new_stream_id(lambda _: random)
    assert parse_event_id(event_id(stream_id, Cursor(epoch, seq))) == (stream_id, Cursor(epoch, seq))


@pytest.mark.parametrize(
    "text",
    [
        "", STREAM, f"{STREAM}.1", f"{STREAM}.0.1", f"{STREAM}.1.01", f"{STREAM}.1.-1", f"{STREAM}.1.+1", f"{STREAM}.1.1 ",
        f"{STREAM}.1.1\n", f" {STREAM}.1.1", f"{STREAM}.1.1.1", f"{STREAM.upper()}.1.1", f"{STREAM[1:]}.1.1",
        f"{STREAM}.1.{MAX_NUMBER + 1}", f"{STREAM}.{'9' * 5000}.1", f"{STREAM}.1.\u0663", f"{STREAM}.1.1_0",
    ],
)  # fmt: skip
def test_what_is_no_event_id_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_event_id(text)
    assert caught.value.param == "last-event-id"
    assert len(caught.value.message) < 100


@given(st.text(alphabet="0123456789abcdef.-+ ", max_size=60) | st.text())
def test_any_text_is_an_id_that_comes_back_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        assert event_id(*parse_event_id(text)) == text
    with contextlib.suppress(InvalidRequest):
        cursor = parse_after(text)
        assert text in (str(cursor.seq), f"{cursor.epoch}.{cursor.seq}")


def test_after_is_a_number_of_the_first_epoch_unless_it_says_which() -> None:
    assert parse_after("17") == Cursor(1, 17)
    assert parse_after("3.17") == Cursor(3, 17)
    assert parse_after("0") == Cursor(1, 0)
    for text in ("", "-1", "1.2.3", ".1", "1.", "0.5", "1e3"):
        with pytest.raises(InvalidRequest):
            parse_after(text)


def test_an_id_that_no_stream_can_have_is_like_any_unknown_one() -> None:
    for text in ("", "x", STREAM + "0", STREAM.upper(), STREAM + "\n"):
        with pytest.raises(StreamNotFound):
            check_stream_id(text)
