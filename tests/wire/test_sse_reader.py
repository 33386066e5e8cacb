import re
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.wire.sse import PING, numbered
from headway.wire.sse_reader import EventTooLarge, SseEvent, SseReader


def read(pieces: Sequence[bytes], max_event_bytes: int = 1 << 20) -> list[SseEvent]:
    reader = SseReader(max_event_bytes)
    return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


def reference(data: bytes, *, is_whole: bool = True) -> tuple[list[SseEvent], bytes | None, int | None]:
    """The standard's parser, byte after byte, over the whole stream: events, last event id, reconnection time."""
    lines, line, i = [], b"", 0
    data = data[3:] if data.startswith(b"\xef\xbb\xbf") else data
    while i < len(data):
        if data[i : i + 2] == b"\r\n" or data[i] in b"\r\n":
            i += 2 if data[i : i + 2] == b"\r\n" else 1
            lines.append(line)
            line = b""
        else:
            line += data[i : i + 1]
            i += 1
    num_whole = len(lines)
    lines += ([line, b""] if line else [b""]) if is_whole else []
    events: list[SseEvent] = []
    values: list[bytes] = []
    name = b""
    id_buffer = last_id = retry = None
    for number, line in enumerate(lines):
        if line == b"":
            last_id = id_buffer if number < num_whole else last_id
            if values:
                events.append(SseEvent(b"\n".join(values), name or None, id_buffer))
            values, name = [], b""
        elif not line.startswith(b":"):
            field, value = line.split(b":", 1) if b":" in line else (line, b"")
            value = value[1:] if value[:1] == b" " else value
            if field == b"event":
                name = value
            elif field == b"data":
                values.append(value)
            elif field == b"error":
                values.append(value)
                name = b"error"
            elif field == b"id" and 0 not in value:
                id_buffer = value
            elif field == b"retry" and re.fullmatch(rb"[0-9]{1,9}", value):
                retry = int(value)
    return events, last_id, retry


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),
        (b": ping\n\n:\ndata: a\n: in between\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b"data:\ndata:\n\n", [b"\n"]),
        (b"id: 7\nretry: 10\nunknown\n\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: \xef\xbb\xbf\n\n", [b"\xef\xbb\xbf"]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: a\ndata: b", [b"a\nb"]),
        (b"\n\n\r\n", []),
        (b"", []),
        ("data: naïve 🎈\n\n".encode(), ["naïve 🎈".encode()]),
    ],
)
def test_a_stream_is_read_whole_and_in_single_bytes(stream: bytes, events: list[bytes]) -> None:
    assert [event.data for event in read([stream])] == events
    assert [event.data for event in read([stream[i : i + 1] for i in range(len(stream))])] == events


def test_names_belong_to_one_event() -> None:
    assert read([b"event: error\ndata: a\n\ndata: b\n\n"]) == [SseEvent(b"a", b"error"), SseEvent(b"b")]
    assert read([b"event: lonely\n\ndata: b\n\n"]) == [SseEvent(b"b")]
    assert read([b"event:\ndata: b\n\n"]) == [SseEvent(b"b", None)]


def test_the_error_field_of_llama_server_is_an_event() -> None:
    assert read([b'error: {"code":500}\n\n']) == [SseEvent(b'{"code":500}', b"error")]


def test_an_event_is_handed_out_by_the_read_that_ends_it() -> None:
    reader = SseReader()
    assert reader.feed(b"data: a\r\n\r") == [SseEvent(b"a")]
    assert reader.feed(b"\n") == []
    assert reader.feed(b"data: b\n\ndata: c\n\nda") == [SseEvent(b"b"), SseEvent(b"c")]
    assert reader.feed(b"ta: d\n\n") == [SseEvent(b"d")]
    assert reader.finish() == []


lines = st.one_of(
    st.sampled_from(
        [
            b"",
            b"data: a",
            b"data:b",
            b"data",
            b"data: ",
            b"event: e",
            b"event",
            b":c",
            b"error: x",
            b"id: 1",
            b"id:2",
            b"id",
            b"id: 3\0",
            b"retry: 50",
            b"retry: 1e3",
            b"\xef\xbb\xbf",
        ]
    ),
    st.text(max_size=8).map(lambda text: b"data: " + text.encode()),
    st.binary(max_size=8),
)
streams = st.lists(
    st.tuples(lines, st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r"]))
).map(lambda pairs: b"".join(line + end for line, end in pairs))


@given(streams | st.binary(), st.lists(st.integers(0, 1 << 16)))
@example(b"data: a\r\n\r\n", [8, 9, 10, 11])
def test_any_cut_gives_the_events_of_the_standard(stream: bytes, places: list[int]) -> None:
    reader = SseReader()
    events = [event for piece in cut(stream, places) for event in reader.feed(piece)]
    assert (events, reader.last_event_id, reader.retry_ms) == reference(stream, is_whole=False)
    whole = reference(stream)
    assert (events + reader.finish(), reader.last_event_id, reader.retry_ms) == whole


def test_ids_last_until_the_next_and_count_from_their_blank_line() -> None:
    reader = SseReader()

    def feed(data: bytes) -> tuple[list[SseEvent], bytes | None]:
        return reader.feed(data), reader.last_event_id

    assert feed(b"id: a\n") == ([], None)
    first, second = SseEvent(b"1", None, b"a"), SseEvent(b"2", None, b"a")
    assert feed(b"data: 1\n\ndata: 2\n\n") == ([first, second], b"a")
    assert feed(b"id: b\n\n") == ([], b"b")
    assert feed(b"id: c\ndata: 3\n") == ([], b"b")
    assert (reader.finish(), reader.last_event_id) == ([SseEvent(b"3", None, b"c")], b"b")


def test_an_id_with_nul_is_none_and_an_empty_one_takes_the_last_back() -> None:
    assert [event.id for event in read([b"id: a\ndata\n\nid: b\0\ndata\n\nid\ndata\n\n"])] == [
        b"a",
        b"a",
        b"",
    ]


def test_our_keep_alive_makes_no_event() -> None:
    stream = numbered("s.1.1", b"{}") + PING + PING + numbered("s.1.2", b"[]", "done")
    assert read([stream]) == [SseEvent(b"{}", None, b"s.1.1"), SseEvent(b"[]", b"done", b"s.1.2")]


def read_until_too_large(pieces: Sequence[bytes], max_event_bytes: int) -> tuple[list[SseEvent], bool]:
    events: list[SseEvent] = []
    reader = SseReader(max_event_bytes)
    try:
        for piece in pieces:
            events += reader.feed(piece)
        return events + reader.finish(), False
    except EventTooLarge as error:
        return events + error.events, True


@given(streams, st.lists(st.integers(0, 1 << 16)))
def test_any_cut_meets_the_limit_after_the_same_events(stream: bytes, places: list[int]) -> None:
    assert read_until_too_large(cut(stream, places), 9) == read_until_too_large([stream], 9)


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"x" * 94 + b"\n", b"data:\n" * 20])
def test_an_endless_event_is_an_error_before_it_fills_the_memory(piece: bytes) -> None:
    reader = SseReader(max_event_bytes=1000)
    with pytest.raises(EventTooLarge, match="larger than 1000 bytes"):
        deque((reader.feed(piece) for _ in range(7000 // len(piece))), maxlen=0)
    with pytest.raises(EventTooLarge):
        reader.feed(b"\n\n")
    with pytest.raises(EventTooLarge):
        reader.finish()


def test_many_small_events_are_no_large_one() -> None:
    assert len(read([b"data: a\n\n" * 1000], max_event_bytes=10)) == 1000
