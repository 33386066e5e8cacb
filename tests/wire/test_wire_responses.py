import msgspec
import pytest

from headway.core.errors import (
    ContextExceeded,
    DeadlineUnmet,
    Draining,
    EngineUnavailable,
    HeadwayError,
    QueueFull,
)
from headway.core.messages import Usage
from headway.wire import sse
from headway.wire.errors import error_body, retry_after
from headway.wire.usage import usage_fields


def test_an_event_is_one_line_of_data_and_a_blank_line_whatever_the_text_holds() -> None:
    text = "a\r\nb\rc\n\n\u2028\u0085"
    data = sse.event({"content": text})
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    assert b"\r" not in data
    assert data.count(b"\n") == 2
    assert msgspec.json.decode(data[len(b"data: ") :]) == {"content": text}


def test_errors_have_openais_shape() -> None:
    error = ContextExceeded("Too long.", param="messages")
    assert msgspec.json.decode(msgspec.json.encode(error_body(error))) == {
        "error": {
            "message": "Too long.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (QueueFull("x"), "1"),
        (QueueFull("x", retry_after_s=0.01), "1"),
        (DeadlineUnmet("x", retry_after_s=0.0), "1"),
        (DeadlineUnmet("x", retry_after_s=17.0001), "18"),
        (DeadlineUnmet("x", retry_after_s=None), None),
        (EngineUnavailable("x", retry_after_s=2.1), "3"),
        (Draining("x", retry_after_s=None), None),
        (HeadwayError("x"), None),
    ],
)
def test_retry_after_is_in_whole_seconds(error: HeadwayError, seconds: str | None) -> None:
    assert retry_after(error) == seconds


def test_usage_adds_up_and_tells_what_was_cached() -> None:
    fields = usage_fields(Usage(prompt_tokens=5, completion_tokens=3, cached_tokens=4))
    assert (fields.total_tokens, fields.prompt_tokens_details.cached_tokens) == (8, 4)
