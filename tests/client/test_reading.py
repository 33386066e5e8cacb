"""Bytes in, an answer out, over one connection or several; scenarios 7, 9 and 10."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.failure import Failure, Kind
from headway.client.reading import AnswerReader, Ended
from headway.streams.ids import Cursor
from headway.wire.sse import DONE, numbered
from support.scripted_stream import chat, event, usage

STREAM = "0123456789abcdef0123456789abcdef"
PIECES = [
    chat(role="assistant", content=""),
    *(chat(content=c) for c in "Hello"),
    chat("stop"),
    usage(5),
    DONE,
]


def number(pieces: list[bytes], epoch: int = 1, stream: str = STREAM) -> list[bytes]:
    datas = [piece.removeprefix(b"data: ").rstrip() for piece in pieces]
    return [numbered(f"{stream}.{epoch}.{seq}", data) for seq, data in enumerate(datas, 1)]


def text(reader: AnswerReader, data: bytes) -> str:
    return "".join(delta.text for delta in reader.feed(data, 0))


def failure(reader: AnswerReader) -> Failure:
    assert isinstance(reader.end, Failure)
    return reader.end


@given(st.lists(st.integers(0, 2000), max_size=6))
def test_an_answer_is_the_same_however_its_bytes_are_cut(cuts: list[int]) -> None:
    data = b"".join(PIECES)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = AnswerReader()
    read = "".join(text(reader, data[a:b]) for a, b in itertools.pairwise(places))
    assert read == "Hello"
    assert isinstance(reader.end, Ended)
    assert reader.end.finish_reason == "stop"
    assert reader.end.usage is not None
    assert reader.end.usage.prompt_tokens == 512
    assert reader.end.model == "m"


def test_without_done_it_has_no_end() -> None:
    reader = AnswerReader()
    assert text(reader, b"".join(PIECES[:-1])) == "Hello"
    assert reader.end is None


def test_done_without_a_reason_is_cut() -> None:
    reader = AnswerReader()
    reader.feed(chat(content="a") + DONE, 0)
    assert failure(reader).kind is Kind.CUT


def test_nothing_is_read_after_the_end() -> None:
    reader = AnswerReader()
    assert text(reader, b"".join(PIECES) + chat(content=" more")) == "Hello"
    assert reader.feed(chat(content=" more"), 0) == []


@pytest.mark.parametrize(
    "data", [event({"error": {"message": "it broke", "code": 503}}), b"event: error\ndata: it broke\n\n"]
)
def test_an_error_within_200_ends_the_answer_typed(data: bytes) -> None:
    reader = AnswerReader()
    assert text(reader, chat(content="a") + data + chat(content="b")) == "a"
    assert failure(reader).kind is Kind.BUSY
    assert failure(reader).message == "it broke"


def test_an_event_too_large_ends_the_answer() -> None:
    reader = AnswerReader()
    assert text(reader, chat(content="a") + b"data: " + b"x" * (5 << 20)) == "a"
    assert failure(reader).kind is Kind.BROKEN


@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from(
            [*PIECES, b"event: error\n", b"data: {}\n\n", b"id: x\n", b"\n\n", *number(PIECES)]
        ),
        max_size=12,
    )
)
def test_any_bytes_give_text_and_at_most_one_end(pieces: list[bytes]) -> None:
    reader = AnswerReader()
    for piece in pieces:
        end = reader.end
        deltas = reader.feed(piece, 0)
        if end is not None:
            assert (deltas, reader.end) == ([], end)
    assert reader.end is None or isinstance(reader.end, Ended | Failure)


def test_plain_streams_have_no_cursor() -> None:
    reader = AnswerReader()
    reader.feed(chat(content="a") + b"id: 17\n" + chat(content="b"), 0)
    assert reader.stream_id is None
    with pytest.raises(RuntimeError):
        _ = reader.last_event_id


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2500)), max_size=6))
def test_drops_and_repeats_at_every_point_change_nothing(connections: list[tuple[int, int]]) -> None:
    events = number(PIECES)
    reader = AnswerReader()
    read = ""
    for back, cut in [*connections, (0, 1 << 20)]:  # a server may repeat what was read before
        reader.reconnected()
        read += text(reader, b"".join(events[max(0, reader.cursor.seq - back) :])[:cut])
        assert "Hello".startswith(read)
    assert isinstance(reader.end, Ended)
    assert read == "Hello"


def test_a_second_drop_before_any_event_keeps_the_cursor() -> None:
    reader = AnswerReader()
    reader.feed(b"".join(number(PIECES)[:3]), 0)
    for _ in range(2):
        reader.reconnected()
        reader.feed(b": ping\n", 0)
        assert reader.last_event_id == f"{STREAM}.1.3"


def test_a_gap_is_never_read_over() -> None:
    events = number(PIECES)
    reader = AnswerReader()
    assert text(reader, events[0] + events[1] + events[3]) == "H"
    assert reader.gap
    assert reader.cursor == Cursor(1, 2)
    reader.reconnected()
    assert text(reader, b"".join(events[2:])) == "ello"


@pytest.mark.parametrize("other", [number(PIECES, epoch=2)[3], number(PIECES, stream="f" * 32)[3]])
def test_another_epoch_or_stream_is_never_spliced_on(other: bytes) -> None:
    reader = AnswerReader()
    assert text(reader, b"".join(number(PIECES)[:3]) + other) == "He"
    assert failure(reader).code == "resync_required"
    assert failure(reader).kind is Kind.CUT


def test_an_error_counts_whether_or_not_it_has_a_number() -> None:
    reader = AnswerReader()
    reader.feed(b"".join(number(PIECES)[:3]), 0)
    reader.feed(b'event: error\ndata: {"error": {"message": "gone", "code": "resync_required"}}\n\n', 0)
    assert (failure(reader).kind, failure(reader).status) == (Kind.CUT, 410)


def test_an_answer_that_comes_whole() -> None:
    reader = AnswerReader()
    deltas = reader.whole(
        b'{"model": "m", "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}'
    )
    assert [delta.text for delta in deltas] == ["a"]
    assert isinstance(reader.end, Ended)


@pytest.mark.parametrize(
    "body", [b"{}", b"", b'{"error": "no"}', b'{"choices": [{"message": {"content": "a"}}]}']
)
def test_what_came_whole_and_is_no_answer(body: bytes) -> None:
    reader = AnswerReader()
    assert reader.whole(body) == []
    failure(reader)
