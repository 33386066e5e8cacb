"""What one event of a streamed answer means, or a whole answer that came at once, from any server with OpenAI's API.

Pure: bytes in, a `Chunk` or a `Failure` out, whatever the bytes. Chat and text completions are read alike.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from headway.client.answer import Delta, ToolCallDelta, Usage
from headway.client.failure import Failure, Kind, kind_of
from headway.core.errors import InternalError, error_from_code

_MAX_MESSAGE_CHARS: Final = 500
_STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 503,
}
"""What an error's `type` stands for, where it comes without a status within a stream (OpenAI's and Anthropic's names)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What an event adds. `delta`: None = nothing that a reader would see."""

    delta: Delta | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str = ""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


_EVENTS: Final = msgspec.json.Decoder(_Event)


def read_chunk(data: bytes) -> Chunk | Failure:
    """Read an event's data, or the body of an answer that came whole."""
    try:
        event = _EVENTS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Failure(
            kind=Kind.BROKEN, message=f"What came is no answer of OpenAI's API ({_shortened(str(error))})."
        )
    if bytes(event.error) != b"null":
        return read_error(data, None)
    for choice in event.choices or ():
        if not choice.index:  # the first one; a call asks for no other
            if choice.finish_reason == "error":  # as some routers end a stream that failed
                return read_error(data, None)
            return _chunk(event, choice)
    return Chunk(usage=_usage(event.usage), model=event.model or "")


def read_error(
    body: bytes, status: int | None, retry_after_ns: int | None = None, again: bool | None = None
) -> Failure:
    """Read an error's JSON, however nested. `status`: None = it came within a stream that began with 200."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    fields = value
    if isinstance(value, dict):
        fields = value.get("error", value)
    told: dict[str, object] = {}
    if isinstance(fields, dict):
        told = {
            name: fields[name] for name in ("message", "detail", "type", "code", "param") if fields.get(name)
        }
    elif isinstance(fields, str):
        told = {"message": fields}
    code, kind_name, param = told.get("code"), told.get("type"), told.get("param")
    message = told.get("message") or told.get("detail") or body.decode(errors="replace").strip()
    if status is None:
        status = _status_within(code, kind_name)
    text_code = code if isinstance(code, str) else ""
    return Failure(
        kind=kind_of(status, text_code),
        message=_shortened(
            message if isinstance(message, str) and message else f"It answered with status {status}."
        ),
        status=status,
        type=kind_name if isinstance(kind_name, str) else "server_error",
        code=_shortened(text_code),
        param=_shortened(param) if isinstance(param, str) else None,
        retry_after_ns=retry_after_ns,
        may_retry=again,
    )


def _status_within(code: object, kind_name: object) -> int:
    """Return the status that an error within a stream stands for: as its code says, ours or a number, else its type."""
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        return code
    if isinstance(code, str):
        known = error_from_code(code, "", param=None, retry_after_s=None)
        if not isinstance(known, InternalError):
            return known.status
        if code in _STATUSES:
            return _STATUSES[code]
    return _STATUSES.get(kind_name, 500) if isinstance(kind_name, str) else 500


def _chunk(event: _Event, choice: _Choice) -> Chunk:
    message = choice.delta or choice.message or _Message()
    delta = Delta(
        text=(message.content or "") + (message.refusal or "") + (choice.text or ""),
        reasoning=message.reasoning_content or message.reasoning or "",
        tool_calls=tuple(_call(place, call) for place, call in enumerate(message.tool_calls or ())),
    )
    return Chunk(
        delta=delta if delta.text or delta.reasoning or delta.tool_calls else None,
        finish_reason=choice.finish_reason,
        usage=_usage(event.usage),
        model=event.model or "",
    )


def _call(place: int, call: _Call) -> ToolCallDelta:
    """`index` is missing in whole answers, where the place in the list stands for it."""
    function = call.function or _Function()
    return ToolCallDelta(
        index=place if call.index is None else call.index,
        id=call.id or "",
        name=function.name or "",
        arguments=function.arguments or "",
    )


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None or usage.prompt_tokens is None:
        return None
    details = usage.prompt_tokens_details
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens or 0,
        cached_tokens=None if details is None else details.cached_tokens,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else text[:_MAX_MESSAGE_CHARS] + " …"
