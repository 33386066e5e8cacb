"""A streamed answer by script: what a server sends and when, in milliseconds of a virtual clock, read into an exchange."""

import json
from collections.abc import Sequence
from typing import Any

from headway.core.clock import NS_PER_MS
from headway.lab.exchange import Exchange, Stamps
from headway.lab.transcript import CountTokens, Ending, Transcript

DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chat(finish_reason: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


def usage(completion_tokens: int, prompt_tokens: int = 512, cached_tokens: int | None = None) -> bytes:
    tokens: dict[str, Any] = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    if cached_tokens is not None:
        tokens["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return event({"choices": [], "usage": tokens})


def play(
    *sent: tuple[float, bytes],
    status: int | None = 200,
    retry_after: str | None = None,
    ending: Ending = "complete",
    ended_ms: float | None = None,
    intended_ms: float = 0,
    dispatched_ms: float = 0,
    connect_ms: float = 0,
    count_tokens: CountTokens | None = None,
) -> Exchange:
    """Read what was `sent` as (ms, bytes), each of them one read of the client's."""
    transcript = Transcript()
    if status is not None:
        transcript.responded(status, retry_after)
    for at_ms, data in sent:
        transcript.received(_ns(at_ms), data)
    last_ms = max([at_ms for at_ms, _ in sent], default=dispatched_ms + connect_ms)
    answered = status is not None
    stamps = Stamps(
        intended_ns=_ns(intended_ms),
        dispatched_ns=_ns(dispatched_ms),
        written_ns=_ns(dispatched_ms + connect_ms),
        first_byte_ns=_ns(min([at_ms for at_ms, _ in sent], default=last_ms)) if answered else None,
        ended_ns=_ns(last_ms if ended_ms is None else ended_ms),
        connect_ns=_ns(connect_ms),
    )
    return Exchange(stamps=stamps, answer=transcript.answer(ending, count_tokens))


def tokens(
    start_ms: float, each_ms: float, num_chunks: int, text: str = "word "
) -> Sequence[tuple[float, bytes]]:
    """Chunks of `text`, the first at `start_ms`, at regular intervals."""
    return [(start_ms + each_ms * i, chat(content=text)) for i in range(num_chunks)]


def _ns(at_ms: float) -> int:
    return round(at_ms * NS_PER_MS)
