"""Ends of calls, for tests of what listens to them."""

from headway.core.events import CallEnded, RequestEnded
from headway.core.messages import Usage

MS = 1_000_000


def ended_request(**fields: object) -> RequestEnded:
    values: dict[str, object] = {
        "request_id": "0" * 31 + "1",
        "model": "m",
        "outcome": "stop",
        "status": 200,
        "usage": Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2),
        "ttft_ns": 5 * MS,
        "queue_ns": 2 * MS,
        "tpot_ns": 4 * MS,
        "e2e_ns": 20 * MS,
        **fields,
    }
    return RequestEnded(**values)  # type: ignore[arg-type]


def ended_call(**fields: object) -> CallEnded:
    values: dict[str, object] = {
        "request_id": f"{1:032x}",
        "method": "POST",
        "endpoint": "/v1/chat/completions",
        "status": 200,
        "duration_ns": 20 * MS,
        **fields,
    }
    return CallEnded(**values)  # type: ignore[arg-type]
