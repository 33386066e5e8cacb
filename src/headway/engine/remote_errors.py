"""What a remote engine's refusals and failures mean to a caller of ours. Pure.

429 stays 429 and 503 stays 503, with what they say of when to come again. A refusal of ourselves (our key, our name for the
model) is the server's fault towards our caller, so 503: his own token is good.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from headway.core.errors import (
    ContextExceeded,
    EngineDied,
    EngineUnavailable,
    HeadwayError,
    InvalidRequest,
    Unavailable,
    UpstreamFailed,
    UpstreamLimited,
    UpstreamTimeout,
    error_from_code,
)

MAX_RETRY_S: Final = 3600.0
_MAX_QUOTED_CHARS: Final = 300


class _Fields(msgspec.Struct):
    message: str | None = None
    param: str | None = None
    code: str | int | None = None
    type: str | None = None


class _Body(msgspec.Struct):
    error: _Fields | str | None = None
    message: str | None = None
    code: str | int | None = None
    param: str | None = None


def of_response(status: int, headers: Mapping[str, str], body: bytes) -> HeadwayError:
    """Return what an answer that is none means. `headers`: by name in lower case."""
    return _error(status, _fields(body), retry_after_s(headers))


def of_event(data: bytes) -> HeadwayError | None:
    """Return what an event says went wrong after the answer had begun; None = it says nothing of the kind."""
    try:
        found = msgspec.json.decode(data, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UpstreamFailed("The model's engine sent an event that is no JSON; send the request again.")
    if found.error is None:
        return None
    fields = _fields(data)
    status = fields.code if isinstance(fields.code, int) else 500
    return _error(status, fields, None)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3; a date counts from the answer's own), None = it says none."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(MAX_RETRY_S, float(text[:9]))
    try:
        until, since = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("date", ""))
        return min(MAX_RETRY_S, max(0.0, (until - since).total_seconds()))
    except (ValueError, TypeError):
        return None


def _fields(body: bytes) -> _Fields:
    try:
        found = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Fields()
    if isinstance(found.error, _Fields):
        return found.error
    return _Fields(message=found.error or found.message, code=found.code, param=found.param)


def _error(status: int, fields: _Fields, retry_s: float | None) -> HeadwayError:
    code = fields.code if isinstance(fields.code, str) else ""
    known = error_from_code(code, "", param=None, retry_after_s=None)
    said = _quoted(fields.message)
    if status == 429 or code == UpstreamLimited.code:
        return UpstreamLimited(
            f"The model's engine takes no more requests for now{said}",
            retry_after_s=1.0 if retry_s is None else retry_s,
        )
    if status == 503 or isinstance(known, Unavailable):
        kind = type(known) if isinstance(known, Unavailable) and known.status == 503 else EngineUnavailable
        return kind(
            f"The model's engine is not available{said}", retry_after_s=1.0 if retry_s is None else retry_s
        )
    if code == EngineDied.code:  # of another Headway, behind which its own engine ended
        return EngineDied("The model's engine ended while the request ran; send it again.")
    if code == ContextExceeded.code:
        return ContextExceeded(
            f"The prompt and the answer do not fit the model's engine{said}", param=fields.param
        )
    if status in (400, 413, 422):
        return InvalidRequest(f"The model's engine refused the request{said}", param=fields.param)
    if status in (401, 403, 404):
        return EngineUnavailable(
            "The model's engine does not take requests of this gateway; its log says more."
        )
    if status in (408, 504):
        return UpstreamTimeout("The model's engine took too long; send the request again.")
    if status == 502:
        return EngineUnavailable("The model's engine cannot be reached; send the request again.")
    return UpstreamFailed(f"The model's engine failed{said}")


def _quoted(message: str | None) -> str:
    if not message:
        return "; send the request again later."
    text = " ".join(message.split())
    return f": {text[:_MAX_QUOTED_CHARS]}"
