"""The lab from Python: one call, one typed result.

import headway.lab

result = headway.lab.run("http://127.0.0.1:8000", workload="medium", arrival="poisson:2", requests=100)
print(result.summary.ttft.successes.percentiles["p50"])
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

import uvloop

from headway.core.clock import NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.comparison import LEAST_ROUNDS
from headway.lab.endpoint import Endpoint, parse_endpoint
from headway.lab.measurement import RunResult, measure
from headway.lab.request_headers import check_session, checked_header, joined
from headway.lab.rounds import Plan, Round, Rounds, take_turns
from headway.lab.run_options import RunOptions
from headway.lab.side import Side, parse_side
from headway.lab.slo import parse_slo
from headway.lab.stream_table import with_streams
from headway.lab.trace_replay import trace_replay
from headway.lab.verdict import Verdict, verdict

REQUESTS_A_TURN = 20


class Load(TypedDict, total=False):
    """What is sent, when, and how much of it; `run_options` has the defaults."""

    workload: str
    arrival: str | None
    requests: int | None
    duration_s: float | None
    output_tokens: int
    lines: int | None
    trace_speed: float | None
    spread_times: bool | float
    bytes_per_token: tuple[float, float] | None
    tokenizer: str | Path | None
    slo: str | None
    seed: int
    processes: int | None


def run(
    url: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    sessions: bool = False,
    streams: Sequence[Mapping[str, object]] | None = None,
    **load: Unpack[Load],
) -> RunResult:
    """Measure an endpoint as `headway bench` does, and return the figures with every record.

    `load` has the command's options and defaults; `headers` go with every request, `sessions` names every conversation in
    one; `streams` are offered at once, each a mapping with the keys of the command's file. Blocks, and brings its own event
    loop; inside one, await `headway.lab.measurement.measure`. Raises ConfigError for what cannot be asked or an endpoint
    that does not answer.
    """
    endpoint = with_headers(parse_endpoint(url, api_key), (headers or {}).items())
    options = named_run(run_options(endpoint, model, **load), sessions=sessions, streams=streams)
    return uvloop.run(measure(options))


def with_headers(endpoint: Endpoint, headers: Iterable[tuple[str, str]]) -> Endpoint:
    """Return the endpoint asked with these headers; raises ConfigError for what is no header."""
    return replace(endpoint, headers=joined(checked_header(name, value) for name, value in headers))


def named_run(
    options: RunOptions, *, sessions: bool, streams: Sequence[Mapping[str, object]] | None
) -> RunOptions:
    """Return options whose conversations name themselves, and that offer `streams` instead of one load, where asked for."""
    options = replace(options, session=f"lab-{options.seed}" if sessions else None)
    check_session(options.endpoint.headers, options.session)
    return options if streams is None else with_streams(options, streams)


def compare(
    a: str | Side,
    b: str | Side,
    *,
    rounds: int = LEAST_ROUNDS,
    least_effect: float = 0.05,
    on_round: Callable[[Round], None] = lambda _: None,
    **load: Unpack[Load],
) -> tuple[Verdict, Rounds]:
    """Let two sides take turns as `headway bench compare` does, and return what can be said of B with every run.

    A side is written `URL,model=NAME,api-key-env=VAR`, or a `Side` with its key. `load` is as of `run`, but 20 requests a
    turn by default. Blocks as `run` does. Raises ConfigError for what cannot be asked or a side that does not answer.
    """
    if rounds < LEAST_ROUNDS:
        raise ConfigError(f"rounds must be at least {LEAST_ROUNDS}, not {rounds}.")
    if not 0 < least_effect < 1:
        raise ConfigError(f"least_effect must lie between 0 and 1, not be {least_effect}.")
    load = {"requests": REQUESTS_A_TURN, **load}
    sides = [parse_side(side) if isinstance(side, str) else side for side in (a, b)]
    options_a, options_b = (run_options(side.endpoint, side.model, **load) for side in sides)
    done = uvloop.run(take_turns(Plan(a=options_a, b=options_b, num_rounds=rounds), on_round=on_round))
    return verdict(done, least_effect=least_effect), done


def run_options(
    endpoint: Endpoint,
    model: str | None,
    *,
    workload: str = "light",
    arrival: str | None = None,
    requests: int | None = None,
    duration_s: float | None = None,
    output_tokens: int = 128,
    lines: int | None = None,
    trace_speed: float | None = None,
    spread_times: bool | float = False,
    bytes_per_token: tuple[float, float] | None = None,
    tokenizer: str | Path | None = None,
    slo: str | None = None,
    seed: int = 0,
    processes: int | None = None,
) -> RunOptions:
    """Return what is measured, of the command's options by name; raises ConfigError for numbers that are none of them.

    `spread_times` is True for the grid of the trace's format, or a number of seconds; `bytes_per_token` of an access log's
    prompts and answers.
    """
    for name, number in (
        ("requests", requests),
        ("duration_s", duration_s),
        ("output_tokens", output_tokens),
        ("spread_times", spread_times or None),
        ("processes", processes),
    ):
        if number is not None and not 0 < number < math.inf:
            raise ConfigError(f"{name} must be a number above 0, not {number}.")
    return RunOptions(
        endpoint=endpoint,
        model=model,
        workload=workload,
        arrival=arrival,
        lines=lines,
        replay=trace_replay(speed=trace_speed, spread_times=spread_times, bytes_per_token=bytes_per_token),
        num_requests=requests,
        duration_ns=None if duration_s is None else round(duration_s * NS_PER_S),
        output_tokens=output_tokens,
        tokenizer=None if tokenizer is None else Path(tokenizer),
        slo=None if slo is None else parse_slo(slo),
        seed=seed,
        num_processes=processes,
    )
