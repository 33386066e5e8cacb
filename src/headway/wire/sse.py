"""Server-sent events as OpenAI sends them: `data: …` and a blank line, LF only (WHATWG HTML, section 9.2).

JSON encoders here never put a line end into a value, so one event is one `data` line.
"""

from typing import Final

import msgspec

DONE: Final = b"data: [DONE]\n\n"
HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would otherwise collect events before it passes them on
)


def event(value: object) -> bytes:
    """Encode one event that carries `value` as JSON."""
    return b"data: %b\n\n" % msgspec.json.encode(value)
