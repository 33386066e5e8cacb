"""Server-sent events: `data: …` and a blank line, with `event: …` before it in some APIs (WHATWG HTML, section 9.2).

LF only. JSON encoders here never put a line end into a value, so one event is one `data` line.
"""

from typing import Final

import msgspec

DONE: Final = b"data: [DONE]\n\n"
HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would otherwise collect events before it passes them on
)


def event(value: object, name: str | None = None) -> bytes:
    """Encode one event that carries `value` as JSON; `name`: its type, where an API uses types."""
    data = b"data: %b\n\n" % msgspec.json.encode(value)
    return data if name is None else b"event: %b\n%b" % (name.encode(), data)
