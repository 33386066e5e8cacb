"""Results of runs that nobody measured: exchanges by script, and what they add up to."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from headway.lab.endpoint import parse_endpoint
from headway.lab.exchange import Exchange
from headway.lab.measurement import RunResult
from headway.lab.run_options import RunOptions
from headway.lab.summary import summarise
from support.scripted_stream import DONE, play, tokens, usage


def answered(
    ttft_ms: float,
    itl_ms: float = 10,
    num_tokens: int = 5,
    *,
    conversation: int = 0,
    due_ms: float = 0,
    cached_tokens: int | None = None,
) -> Exchange:
    """A request that is sent when it is due, and one token a chunk."""
    sent = tokens(due_ms + ttft_ms, itl_ms, num_tokens)
    counted = usage(num_tokens, prompt_tokens=100, cached_tokens=cached_tokens)
    exchange = play(*sent, (sent[-1][0], counted + DONE), intended_ms=due_ms, dispatched_ms=due_ms)
    return replace(exchange, conversation=conversation)


def run_result(
    exchanges: Sequence[Exchange],
    options: RunOptions | None = None,
    *,
    lag_p99_ns: float = 0,
    interrupted: bool = False,
) -> RunResult:
    """What a run of these exchanges would have returned."""
    options = options or RunOptions(endpoint=parse_endpoint("http://localhost:1"))
    return RunResult(
        options=options,
        model=options.model or "m",
        arrival=options.arrival or "closed:1",
        started_at=datetime(2026, 11, 30, 2, 3, 4, 567, UTC),
        start_ns=12,
        summary=summarise(exchanges, slo=options.slo),
        exchanges=tuple(exchanges),
        lag_p99_ns=lag_p99_ns,
        interrupted=interrupted,
    )
