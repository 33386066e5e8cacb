from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.messages import TokenLogprobs
from headway.gateway.choice_text import ChoiceText
from headway.gateway.text_events import ChoiceEnd, Piece, TextEvent, ToolCallArguments, ToolCallStart
from headway.gateway.tool_parser import ToolParser
from headway.gateway.tool_syntax import HERMES
from headway.models.detokenizer import Detokenizer
from headway.models.stop_strings import StopMatcher
from support.byte_text import EOS_ID, ByteTokenizer


def choice_text(*stop: str) -> ChoiceText:
    return ChoiceText(0, Detokenizer(ByteTokenizer()), StopMatcher(stop) if stop else None)


def scores(data: bytes) -> tuple[TokenLogprobs, ...]:
    return tuple(TokenLogprobs(byte, -1.0) for byte in data)


def text_of(events: Sequence[TextEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Piece))


def test_a_character_is_given_out_when_it_is_whole() -> None:
    choice = choice_text()
    assert choice.push(b"\xe2\x82", ()) == ()
    assert choice.push(b"\xac!", ()) == (Piece(0, "€!"),)
    assert choice.finish("length") == (ChoiceEnd(0, "length"),)


def test_half_a_character_at_the_end_is_not_lost_silently() -> None:
    choice = choice_text()
    choice.push(b"\xe2\x82", ())
    assert choice.finish("length") == (Piece(0, "\ufffd"), ChoiceEnd(0, "length"))


def test_a_stop_string_ends_the_choice_at_once_and_never_leaks() -> None:
    choice = choice_text("END")
    assert choice.push(b"abE", ()) == (Piece(0, "ab"),)
    assert choice.push(b"N", ()) == ()
    assert choice.push(b"D and more", ()) == (ChoiceEnd(0, "stop", stop="END"),)
    assert choice.num_tokens == 5  # "ab" and the stop string, nothing after it
    assert choice.push(b"more", ()) == ()
    assert choice.finish("length") == ()
    assert choice.num_tokens == 5


def test_what_only_began_a_stop_string_is_given_out_at_the_end() -> None:
    choice = choice_text("END")
    choice.push(b"abEN", ())
    assert choice.finish("stop") == (Piece(0, "EN"), ChoiceEnd(0, "stop"))


def test_logprobs_travel_with_their_text() -> None:
    choice = choice_text("END")
    data = "a€EN".encode()
    (first,) = choice.push(data, scores(data))
    assert isinstance(first, Piece)
    assert first.text == "a€"
    assert [(token.start, token.logprobs.token_id) for token in first.scored] == [
        (0, ord("a")),
        *((1, byte) for byte in "€".encode()),
    ]
    rest = choice.finish("stop")
    assert isinstance(rest[0], Piece)
    assert [token.start for token in rest[0].scored] == [2, 3]


def test_logprobs_of_tokens_within_the_stop_string_are_not_delivered() -> None:
    choice = choice_text("END")
    piece, end = choice.push(b"aEND", scores(b"aEND"))
    assert isinstance(piece, Piece)
    assert [token.logprobs.token_id for token in piece.scored] == [ord("a")]
    assert end == ChoiceEnd(0, "stop", stop="END")


def test_logprobs_without_text_come_with_the_end() -> None:
    choice = choice_text()
    assert choice.push((EOS_ID,), (TokenLogprobs(EOS_ID, -1.0),)) == ()
    (end,) = choice.finish("stop")
    assert isinstance(end, ChoiceEnd)
    assert [token.logprobs.token_id for token in end.scored] == [EOS_ID]


@given(
    st.text(max_size=30), st.lists(st.integers(1, 5), max_size=30), st.sampled_from(["", "a", "ab", "aab"])
)
def test_text_and_count_do_not_depend_on_how_tokens_are_cut_into_steps(
    text: str, cuts: list[int], stop: str
) -> None:
    data = text.encode()
    whole = choice_text(*([stop] if stop else []))
    expected = [*whole.push(data, ()), *whole.finish("length")]
    parts = choice_text(*([stop] if stop else []))
    events: list[TextEvent] = []
    for size in cuts:
        events += parts.push(data[:size], ())
        data = data[size:]
    events += [*parts.push(data, ()), *parts.finish("length")]
    assert text_of(events) == text_of(expected)
    assert events[-1] == expected[-1]
    assert parts.num_tokens == whole.num_tokens
    if stop:
        assert stop not in text_of(events)
    assert all(event.text for event in events if isinstance(event, Piece))


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_nothing_comes_after_the_end(reason: str) -> None:
    choice = choice_text()
    choice.finish("stop" if reason == "stop" else "length")
    assert choice.push(b"a", ()) == ()
    assert choice.finish("stop") == ()
    assert choice.num_tokens == 0


TOOL_TEXT = (
    'Hm, {END}\n<tool_call>\n{"name": "f", "arguments": {"a": "END"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\nDone. €'
)


def with_tools(*stop: str, max_calls: int | None = None) -> ChoiceText:
    parser = ToolParser(0, HERMES, {"f": {}}, lambda: "id", max_calls)
    return ChoiceText(0, Detokenizer(ByteTokenizer()), StopMatcher(stop) if stop else None, parser)


def joined(events: Sequence[TextEvent]) -> list[object]:
    """Everything but the seams: adjoining text and arguments joined."""
    found: list[object] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, Piece) and isinstance(last, Piece):
            found[-1] = Piece(0, last.text + event.text, last.scored + event.scored)
        elif isinstance(event, ToolCallArguments) and isinstance(last, ToolCallArguments):
            found[-1] = ToolCallArguments(0, last.index, last.text + event.text)
        else:
            found.append(event)
    return found


@given(
    st.lists(st.integers(1, 12), max_size=40),
    st.sampled_from(["", "END", "Done", "}}", "\n"]),
    st.sampled_from([None, 1, 2]),
)
def test_text_around_calls_does_not_depend_on_how_tokens_are_cut_into_steps(
    cuts: list[int], stop: str, max_calls: int | None
) -> None:
    data = TOOL_TEXT.encode()
    stops = [stop] if stop else []
    whole = with_tools(*stops, max_calls=max_calls)
    expected = joined([*whole.push(data, scores(data)), *whole.finish("stop")])
    parts = with_tools(*stops, max_calls=max_calls)
    events: list[TextEvent] = []
    for size in cuts:
        events += parts.push(data[:size], scores(data[:size]))
        data = data[size:]
    events += [*parts.push(data, scores(data)), *parts.finish("stop")]
    assert joined(events) == expected
    assert parts.num_tokens == whole.num_tokens
    for event in events:
        if isinstance(event, Piece):
            assert all(token.logprobs.token_id in event.text.encode() for token in event.scored)


def test_a_stop_string_held_back_does_not_reach_across_a_call() -> None:
    choice = with_tools("XY")
    text = 'X<tool_call>{"name": "f"}</tool_call>Y'
    events = [*choice.push(text.encode(), ()), *choice.finish("stop")]
    assert joined(events) == [
        Piece(0, "X"),
        ToolCallStart(0, 0, "id", "f"),
        ToolCallArguments(0, 0, "{}"),
        Piece(0, "Y"),
        ChoiceEnd(0, "tool_calls"),
    ]


def test_ids_come_with_the_text_they_complete_and_none_is_lost() -> None:
    choice = ChoiceText(0, Detokenizer(ByteTokenizer()), StopMatcher(("END",)), tells_ids=True)
    assert choice.push(b"a\xe2", ()) == (Piece(0, "a", (), (0x61, 0xE2)),)
    assert choice.push(b"\x82", ()) == ()
    assert choice.push(b"\xac", ()) == (Piece(0, "€", (), (0x82, 0xAC)),)
    assert choice.push(b"EN", ()) == ()
    assert choice.push(b"Dx", ()) == (ChoiceEnd(0, "stop", stop="END", token_ids=tuple(b"END")),)


@pytest.mark.parametrize("tells_ids", [False, True])
@given(steps=st.lists(st.binary(max_size=5), max_size=8))
def test_text_that_nothing_holds_back_is_what_a_stop_string_that_never_comes_lets_through(
    steps: list[bytes], tells_ids: bool
) -> None:
    def texts() -> list[ChoiceText]:
        stops = (None, StopMatcher(["\x00" * 100]))
        return [ChoiceText(0, Detokenizer(ByteTokenizer()), stop, tells_ids=tells_ids) for stop in stops]

    plain, watched = texts()
    for step in steps:
        if b"\x00" not in step:
            assert plain.push(step, ()) == watched.push(step, ())
            assert plain.num_tokens == watched.num_tokens
    assert plain.finish("length") == watched.finish("length")
