"""Reads server-sent events from bytes as they arrive, however they were cut (WHATWG HTML, section 9.2).

Knows lines and events, not what they mean. A field `error`, which the standard ignores, is an event named `error`, since
llama-server long announced failures in this way. An event without its final blank line is dropped, as the standard says,
unless `finish` is asked for it: a measurement must not look away, a client that resumes gets the event again. Line ends
are found by the interpreter's own byte search; the loop runs once a line.
"""

from typing import Final, NamedTuple

MAX_EVENT_BYTES: Final = 4 << 20
"""A bound of memory against a stream that never ends its line: an event of a streamed answer is a few kilobytes."""
_LONGEST_RETRY_DIGITS: Final = 9
_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event. `data`: its lines joined with LF. `name`: its type, None = not given. `id`: the last id that the stream
    gave up to its end, None = none yet.
    """

    data: bytes
    name: bytes | None = None
    id: bytes | None = None


class EventTooLarge(ValueError):
    """A line, or the data of an event, exceeds the limit. `events`: those that the same read completed before it."""

    def __init__(self, max_bytes: int, events: list[SseEvent]) -> None:
        super().__init__(f"an event of the stream is larger than {max_bytes} bytes")
        self.events = events


class SseReader:
    """The state of one stream between two reads; holds at most an unfinished line and an unfinished event.

    last_event_id   what to ask the next connection for: the last id before a blank line; an id that the connection's end
                    cut off from its blank line does not count, b"" = the stream took its id back
    retry_ms        how long the stream asks to wait before a reconnect
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_event_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._num_data_bytes = 0
        self._name: bytes | None = None
        self._id: bytes | None = None
        self.last_event_id: bytes | None = None
        self.retry_ms: int | None = None
        self._at_start = True
        self._after_cr = False
        self._too_large = False

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes and return the events they complete, in order; EventTooLarge, then and from then on."""
        if self._too_large:
            raise EventTooLarge(self._max_bytes, [])
        if not data:
            return []
        if self._after_cr and data[0] == 0x0A:  # the second half of a CRLF cut in two
            data = data[1:]
            self._after_cr = False
            if not data:
                return []
        self._after_cr = data[-1] == 0x0D
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        rest = lines.pop()
        events: list[SseEvent] = []
        if lines and self._line:
            self._line += lines[0]
            lines[0] = bytes(self._line)
            self._line.clear()
        for line in lines:
            self._take_line(line, events)
        self._line += rest
        self._check(len(self._line), events)
        return events

    def finish(self) -> list[SseEvent]:
        """Return the event that the stream's end cut off from its blank line, if any. Raises EventTooLarge."""
        last_event_id = self.last_event_id
        events = self.feed(b"\n") if self._line else self.feed(b"")
        self._end_event(events)
        self.last_event_id = last_event_id
        return events

    def _take_line(self, line: bytes, events: list[SseEvent]) -> None:
        self._check(len(line), events)
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._end_event(events)
        elif line.startswith(b"data:"):
            self._add_data(line[6 if line.startswith(b" ", 5) else 5 :], events)
        elif line[0] != 0x3A:  # a colon begins a comment
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                self._name = value or None
            elif field == b"data":  # alone in its line: an empty line of data
                self._add_data(value, events)
            elif field == b"id":
                if b"\0" not in value:
                    self._id = value
            elif field == b"error":
                self._name = field
                self._add_data(value, events)
            elif field == b"retry" and value.isdigit() and len(value) <= _LONGEST_RETRY_DIGITS:
                self.retry_ms = int(value)

    def _add_data(self, value: bytes, events: list[SseEvent]) -> None:
        self._num_data_bytes += len(value) + 1
        self._check(self._num_data_bytes - 1, events)
        self._data.append(value)

    def _end_event(self, events: list[SseEvent]) -> None:
        self.last_event_id = (
            self._id
        )  # without data, too: the standard's dispatch sets it before it looks at the data
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            events.append(SseEvent(data, self._name, self._id))
            self._data.clear()
            self._num_data_bytes = 0
        self._name = None

    def _check(self, num_bytes: int, events: list[SseEvent]) -> None:
        if num_bytes > self._max_bytes:
            self._too_large = True
            raise EventTooLarge(self._max_bytes, events)
