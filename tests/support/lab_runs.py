"""Results of runs made from scripted requests, as `headway bench` would have returned them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Exchange
from headway.lab.latency import lag_ns
from headway.lab.measurement import RunResult
from headway.lab.run_options import RunOptions
from headway.lab.slo import Slo
from headway.lab.summary import summarise
from support.scripted_stream import DONE, event, play, tokens, usage


def answered(
    intended_ms: float = 0,
    *,
    ttft_ms: float = 50,
    itl_ms: float = 10,
    num_tokens: int = 5,
    prompt_tokens: int = 512,
    cached_tokens: int | None = None,
    conversation: int = 0,
    turn: int = 1,
    label: str = "light",
    **stamps: float,
) -> Exchange:
    """A request whose answer comes evenly, sent when it is due unless `stamps` says otherwise."""
    sent = tokens(intended_ms + ttft_ms, itl_ms, num_tokens)
    end_ms = sent[-1][0]
    told = usage(num_tokens, prompt_tokens, cached_tokens)
    exchange = play(
        *sent,
        (end_ms, told),
        (end_ms, DONE),
        **{"intended_ms": intended_ms, "dispatched_ms": intended_ms, **stamps},  # type: ignore[arg-type]
    )
    return replace(exchange, conversation=conversation, turn=turn, label=label)


def failed(intended_ms: float = 0, *, after_ms: float = 5, message: str = "no") -> Exchange:
    """A request that an error inside HTTP 200 ends before its first token."""
    return play(
        (intended_ms + after_ms, event({"error": {"message": message}})),
        intended_ms=intended_ms,
        dispatched_ms=intended_ms,
    )


def result_of(exchanges: Sequence[Exchange], *, slo: Slo | None = None, **change: Any) -> RunResult:
    """Add a run up; `change` replaces fields of the result."""
    result = RunResult(
        options=RunOptions(endpoint=Endpoint(host="127.0.0.1", port=8000, path="/v1"), slo=slo),
        model="m",
        arrival="poisson:2",
        started_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        start_ns=0,
        summary=summarise(exchanges, slo=slo),
        exchanges=tuple(exchanges),
        lag_p99_ns=float(max(map(lag_ns, exchanges), default=0)),
        interrupted=False,
    )
    return replace(result, **change)


def run_of(options: RunOptions, exchanges: Sequence[Exchange], **change: Any) -> RunResult:
    """Add up a run that these options asked for."""
    asked = {"options": options, "model": options.model or "m", "arrival": options.arrival or "closed:1"}
    return result_of(exchanges, slo=options.slo, **{**asked, "lag_p99_ns": 0.0, **change})


@cache
def usual_run() -> RunResult:
    """A run of which every plot has something to show, with two failures of sixty."""
    exchanges = [
        answered(
            100.0 * number,
            ttft_ms=40 + 10 * (number % 7) + number,
            itl_ms=8 + number % 5,
            num_tokens=12,
            prompt_tokens=400 + 40 * number,
            cached_tokens=300 if number % 3 == 0 and number < 10 else 0,
            conversation=number,
            connect_ms=2 if number == 0 else 0,
        )
        if number % 30 != 29
        else failed(100.0 * number)
        for number in range(60)
    ]
    return result_of(exchanges)
