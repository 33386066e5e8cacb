import json

import pytest

from headway.core.errors import InvalidRequest, UpstreamFailed, UpstreamTimeout
from headway.engine.remote_errors import of_event, of_response, retry_after_s


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "99999999999"}, 3600.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        (
            {"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"},
            10.0,
        ),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2027 07:28:00 GMT"}, 0.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_refusal_is_quoted_on_one_line_and_not_at_length() -> None:
    body = json.dumps({"error": {"message": "too\nlong " + "x" * 1000, "param": "top_k"}}).encode()
    error = of_response(400, {}, body)
    assert isinstance(error, InvalidRequest)
    assert error.param == "top_k"
    assert "too long xxx" in error.message
    assert len(error.message) < 400


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"error": 3}', b'{"error": "words"}', b"\xff"])
def test_a_body_may_be_anything(body: bytes) -> None:
    assert isinstance(of_response(500, {}, body), UpstreamFailed)


def test_a_gateway_in_between_that_gave_up_is_a_time_out() -> None:
    assert isinstance(of_response(504, {}, b""), UpstreamTimeout)


def test_an_event_without_an_error_is_none() -> None:
    assert of_event(b'{"choices": []}') is None
