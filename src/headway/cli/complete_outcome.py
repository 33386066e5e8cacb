"""What `headway complete` says of a call: a line of JSON, and an exit code an editor can go by. Pure."""

from enum import IntEnum

import msgspec

from headway.cli.complete_request import Cursor, EditorRequest
from headway.client.answer import Answer
from headway.client.errors import CallError, DeadlinePassed, Refused, Throttled
from headway.core.clock import NS_PER_MS

_PASSING = (408, 409, 425, 429)
_UNAUTHENTICATED = 401


class Exit(IntEnum):
    """Exit codes of the command; 1 is a bug of ours, as everywhere."""

    ANSWER = 0
    MISTAKE = 2
    EMPTY = 3
    DEADLINE = 4
    REFUSED = 5
    UNREACHABLE = 6


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed with `--json` and `--json-lines`. `text`: of a call that failed, as far as it came."""

    id: str | int | None = None
    status: str
    text: str = ""
    finish_reason: str | None = None
    endpoint: str | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    retry_after_s: float | None = None
    message: str | None = None
    cursor: Cursor | None = None


def answered(request: EditorRequest, answer: Answer) -> Outcome:
    """Describe an answer."""
    usage = answer.usage
    return Outcome(
        id=request.id,
        status="answer" if answer.text else "empty",
        text=answer.text,
        finish_reason=answer.finish_reason,
        endpoint=answer.endpoint,
        ttft_ms=None if answer.ttft_ns is None else _ms(answer.ttft_ns),
        total_ms=_ms(answer.total_ns),
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
        completion_tokens=None if usage is None else usage.completion_tokens,
        cursor=request.cursor,
    )


def failed(request: EditorRequest, error: CallError) -> Outcome:
    """Describe a call that ended without an answer."""
    return Outcome(
        id=request.id,
        status=_status(error),
        text=error.text,
        retry_after_s=error.retry_after_s,
        message=_message(error),
        cursor=request.cursor,
    )


def exit_code(outcome: Outcome) -> Exit:
    """Return what the command exits with."""
    return Exit[outcome.status.upper()]


def _status(error: CallError) -> str:
    if isinstance(error, DeadlinePassed):
        return "deadline"
    if isinstance(error, Refused):
        return "refused" if error.status in _PASSING or error.status >= 500 else "mistake"
    return "refused" if isinstance(error, Throttled) else "unreachable"


def _message(error: CallError) -> str:
    if isinstance(error, Refused) and error.status == _UNAUTHENTICATED:
        return f"{error.message} --api-key-env names the variable that holds a token."
    return error.message


def _ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 1)
