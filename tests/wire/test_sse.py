"""Events that were encoded but for their text are those that would have been encoded whole."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.wire.chat_response import ChatChunk, ChunkChoice, Delta
from headway.wire.sse import TextEvents, event


def chunk(text: str, model: str) -> bytes:
    choices = [ChunkChoice(index=3, delta=Delta(content=text))]
    return event(ChatChunk(id="chatcmpl-1", created=7, model=model, choices=choices, system_fingerprint="fp"))


@given(st.text(), st.text(min_size=2))
@example("text", '"\0')
def test_any_text_stands_where_the_blank_stood(text: str, model: str) -> None:
    encoded = TextEvents(chunk(TextEvents.BLANK, model)).event(text)
    assert encoded == chunk(text, model)
    assert encoded.count(b"\n") == 2
    assert msgspec.json.decode(encoded.removeprefix(b"data: "))["choices"][0]["delta"]["content"] == text


def test_an_example_without_a_blank_is_no_example() -> None:
    with pytest.raises(AssertionError):
        TextEvents(chunk("text", "model"))
