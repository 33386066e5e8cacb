"""Reads what came back for one request, read by read, into an answer. Knows no sockets: the client says what came when."""

from collections.abc import Callable
from http import HTTPStatus
from itertools import pairwise
from typing import Final, Literal

from headway.lab.deltas import TEXT_KINDS, Delta, TokenUsage, error_code, error_message, read_delta
from headway.lab.exchange import Answer, Failure, StreamEvent
from headway.wire.sse_reader import MAX_EVENT_BYTES, EventTooLarge, SseReader

Ending = Literal["complete", "closed", "silence", "no_http"]
"""How the connection ended it: the HTTP message was complete; the peer closed or reset; the client's patience ended; what
came is not HTTP."""
CountTokens = Callable[[str], int]

_MAX_REFUSAL_BYTES: Final = 4096
_REFUSALS: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_LONGEST_RETRY_DIGITS: Final = 9


class Transcript:
    """What came back for one request so far. Methods are called in the order in which things happened."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._reader = SseReader(max_event_bytes)
        self._deltas: list[tuple[int, Delta]] = []
        self._status: int | None = None
        self._retry_after: str | None = None
        self._refusal = b""
        self._num_bytes = 0
        self._last_ns = 0
        self._too_large: str | None = None

    def responded(self, status: int, retry_after: str | None = None) -> None:
        """Take the answer's status, and its Retry-After header where there is one."""
        self._status, self._retry_after = status, retry_after

    def received(self, now_ns: int, body: bytes) -> None:
        """Take bytes of the body. `now_ns`: when they arrived, stamped before anything looked at them."""
        self._num_bytes += len(body)
        self._last_ns = now_ns
        if self._status != HTTPStatus.OK:
            self._refusal += body[: _MAX_REFUSAL_BYTES - len(self._refusal)]
        elif self._too_large is None:
            try:
                events = self._reader.feed(body)
            except EventTooLarge as error:
                self._too_large = str(error)
                events = error.events
            self._deltas += [(now_ns, read_delta(event)) for event in events]

    def answer(self, ending: Ending, count_tokens: CountTokens | None = None) -> Answer:
        """Read what came; called once, at the end. `count_tokens`: counts a text's tokens where the server's usage is
        missing.
        """
        if self._status is None:
            return Answer(failure=_no_status(ending))
        if self._status != HTTPStatus.OK:
            return Answer(failure=self._refused(self._status))
        deltas = self._deltas
        if self._too_large is None:
            last = [read_delta(event) for event in self._reader.finish()]
            # Cut off within its text, it is no garbage: the stream was closed.
            deltas = deltas + [(self._last_ns, delta) for delta in last if delta.kind != "garbage"]
        deltas = _until_done(deltas)
        usages = [delta.usage for _, delta in deltas if delta.usage is not None]
        reasons = [delta.finish_reason for _, delta in deltas if delta.finish_reason is not None]
        return Answer(
            events=_events(deltas, count_tokens),
            usage=_merged(usages) if usages else None,
            finish_reason=reasons[-1] if reasons else None,
            failure=self._failure([delta for _, delta in deltas], ending),
            content="".join(delta.text for _, delta in deltas if delta.kind == "content"),
        )

    def _refused(self, status: int) -> Failure:
        wait = self._retry_after
        seconds = wait.strip() if wait else ""
        in_seconds = seconds.isascii() and seconds.isdecimal() and len(seconds) <= _LONGEST_RETRY_DIGITS
        return Failure(
            kind="refused" if status in _REFUSALS else "status",
            status=status,
            code=error_code(self._refusal),
            message=error_message(self._refusal) or f"HTTP {status}",
            retry_after_s=float(seconds) if in_seconds else None,
        )

    def _failure(self, deltas: list[Delta], ending: Ending) -> Failure | None:
        for delta in deltas:
            if delta.kind == "error":
                return Failure(kind="error_event", message=delta.message or "an error without a message")
            if delta.kind == "garbage":
                return Failure(kind="garbage", message=delta.message or "an event that is not JSON")
        if self._too_large is not None:
            return Failure(kind="garbage", message=self._too_large)
        if not any(delta.kind == "done" or delta.finish_reason is not None for delta in deltas):
            return self._unfinished(ending)
        if not any(delta.kind in TEXT_KINDS for delta in deltas):
            return Failure(kind="empty", message="the answer ended well and held nothing")
        return None

    def _unfinished(self, ending: Ending) -> Failure:
        if ending == "silence":
            return Failure(kind="silence", message="nothing came for as long as the client waits")
        if ending == "no_http" or (ending == "complete" and self._num_bytes and not self._deltas):
            return Failure(kind="garbage", message="the body is no event stream")
        return Failure(kind="closed", message="the stream stopped without a finish_reason or [DONE]")


def _no_status(ending: Ending) -> Failure:
    if ending == "silence":
        return Failure(kind="silence", message="no status came for as long as the client waits")
    if ending == "no_http":
        return Failure(kind="garbage", message="the answer is not HTTP")
    return Failure(kind="connection", message="the connection failed before a status came")


def _until_done(deltas: list[tuple[int, Delta]]) -> list[tuple[int, Delta]]:
    for i, (_, delta) in enumerate(deltas):
        if delta.kind == "done":
            return deltas[: i + 1]
    return deltas


def _events(deltas: list[tuple[int, Delta]], count: CountTokens | None) -> tuple[StreamEvent, ...]:
    text_deltas = [delta for _, delta in deltas if delta.kind in TEXT_KINDS]
    told = [delta.usage.completion_tokens if delta.usage else None for delta in text_deltas]
    # With every chunk (vLLM's continuous_usage_stats) usage says what each brought; once at the end it says only the sum.
    if None not in told:
        so_far = [total or 0 for total in told]
        counts: list[int | None] = [max(0, new - old) for old, new in pairwise([0, *so_far])]
    else:
        counts = [max(0, count(delta.text)) if count else None for delta in text_deltas]
    remaining = iter(counts)
    return tuple(
        StreamEvent(
            at_ns=at_ns,
            kind=delta.kind,
            num_chars=len(delta.text),
            num_tokens=next(remaining) if delta.kind in TEXT_KINDS else None,
        )
        for at_ns, delta in deltas
    )


def _merged(usages: list[TokenUsage]) -> TokenUsage:
    """Take the last that each field was said to be."""
    merged = TokenUsage()
    for usage in usages:
        merged = TokenUsage(
            prompt_tokens=_either(usage.prompt_tokens, merged.prompt_tokens),
            completion_tokens=_either(usage.completion_tokens, merged.completion_tokens),
            cached_tokens=_either(usage.cached_tokens, merged.cached_tokens),
        )
    return merged


def _either(new: int | None, old: int | None) -> int | None:
    return old if new is None else new
