"""What an answer becomes in a stream's log: one entry for each server-sent event, with its kind. Pure."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from headway.core.errors import HeadwayError
from headway.core.messages import Usage
from headway.gateway.answer import Answer
from headway.gateway.text_events import Piece, TextEvent, ToolCallArguments
from headway.streams.ids import Cursor, event_id
from headway.streams.record import Entry, Event, EventKind
from headway.wire import sse
from headway.wire.error_shapes import shape_at


def entries_of(answer: Answer, events: Sequence[TextEvent]) -> list[Entry]:
    """Return what a step brought. What opens an answer goes with its first text."""
    return [
        entry
        for event in events
        for entry in _split(
            answer.stream((event,)),
            "content" if isinstance(event, Piece | ToolCallArguments) else "control",
        )
    ]


def last_entries(answer: Answer, usage: Usage) -> list[Entry]:
    """Return what follows the last choice."""
    return list(_split(answer.stream_end(usage), "control"))


def error_entries(answer: Answer, error: HeadwayError) -> list[Entry]:
    """Return what ends a stream that an error cut off; the last entry is the error, before it what opens an answer."""
    *before, last = _split(answer.stream_error(error), "error")
    return [*(replace(entry, kind="control") for entry in before), last]


def lone_error_entries(endpoint: str, error: HeadwayError) -> list[Entry]:
    """Return what ends a stream whose answer is not at hand, as the API at `endpoint` has it."""
    return list(_split(shape_at(endpoint).event(error), "error"))


def wire_bytes(stream_id: str, epoch: int, events: Sequence[Event]) -> bytes:
    """Encode numbered events for a client."""
    return b"".join(
        sse.numbered(event_id(stream_id, Cursor(epoch, event.seq)), event.entry.data, event.entry.name)
        for event in events
    )


def _split(data: bytes, kind: EventKind) -> Iterator[Entry]:
    """Take apart what `wire.sse` encoded: events of one `data` line, with an `event` line before it or not."""
    for text in data.split(b"\n\n")[:-1]:
        name, _, line = text.rpartition(b"\n")
        yield Entry(
            kind,
            line.removeprefix(b"data: "),
            name.removeprefix(b"event: ").decode() if name else None,
        )
