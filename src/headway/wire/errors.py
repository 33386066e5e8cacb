"""Errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""

import math

import msgspec

from headway.core.errors import HeadwayError
from headway.wire import sse


class ErrorFields(msgspec.Struct, frozen=True, kw_only=True):
    """What clients read: `message` for people, `type` and `code` for programs, `param` names the field."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of an error response, and the value of an error event in a stream."""

    error: ErrorFields


def error_body(error: HeadwayError) -> ErrorBody:
    """Describe an error."""
    return ErrorBody(ErrorFields(message=error.message, type=error.type, param=error.param, code=error.code))


def error_event(error: HeadwayError) -> bytes:
    """Encode an error that ends a stream; clients take it for one on any of OpenAI's APIs."""
    return sse.event(error_body(error))


def retry_after(error: HeadwayError) -> str | None:
    """Return the value of the `Retry-After` header in whole seconds, at least 1; None = no header (RFC 9110, 10.2.3)."""
    return None if error.retry_after_s is None else str(max(1, math.ceil(error.retry_after_s)))
