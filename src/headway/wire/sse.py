"""Server-sent events: `data: …` and a blank line, with `event: …` before it in some APIs (WHATWG HTML, section 9.2).

LF only. JSON encoders here never put a line end into a value, so one event is one `data` line.
"""

from typing import Final

import msgspec

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": ping\n"
"""A comment that keeps a connection from being closed as idle. No blank line follows: where an id stands, parsers that make
an event of every blank line would make one of nothing."""
HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would otherwise collect events before it passes them on
)


def event(value: object, name: str | None = None) -> bytes:
    """Encode one event that carries `value` as JSON; `name`: its type, where an API uses types."""
    data = b"data: %b\n\n" % msgspec.json.encode(value)
    return data if name is None else b"event: %b\n%b" % (name.encode(), data)


class TextEvents:
    """Encodes events that are all alike but for one text: what is around it was encoded once.

    example   such an event, encoded, with a field whose value is `BLANK`, as no other field's is
    """

    BLANK: Final = "\0"

    __slots__ = ("_after", "_before")

    def __init__(self, example: bytes) -> None:
        # A field's value is found, and no part of another: no string holds a quote that is not escaped.
        blank = b":" + msgspec.json.encode(self.BLANK)
        before, found, self._after = example.partition(blank)
        assert found, "no blank for the text"
        self._before = before + b":"

    def event(self, text: str) -> bytes:
        """Return the event with `text`."""
        return self._before + msgspec.json.encode(text) + self._after


def numbered(event_id: str, data: bytes, name: str | None = None) -> bytes:
    """Encode one event of a stream that can be resumed. `data`: one line; `event_id` and `name`: ASCII, one line each."""
    head = b"id: %b\n" % event_id.encode("ascii")
    return b"%bdata: %b\n\n" % (
        head if name is None else b"%bevent: %b\n" % (head, name.encode("ascii")),
        data,
    )
