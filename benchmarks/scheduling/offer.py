"""Offers streams to a server and keeps what they add up to, by group: the part of a stream's name before its first slash."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import headway.lab
from endpoints.servers import MODEL_NAME
from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.admission import admission, admission_json
from headway.lab.arrival_table import itl_samples
from headway.lab.breakdown import cached_share
from headway.lab.distribution import Floats, describe
from headway.lab.exchange import Exchange
from headway.lab.figures import rounded
from headway.lab.goodput import failures, goodput, values
from headway.lab.latency import due_ns, ttft_ns
from headway.lab.sharing import sharing, sharing_json
from headway.lab.slo import parse_slo
from headway.lab.tokens import token_counts
from peers.machine import BusyMeter, load_average
from scheduling.mix import SLO, Stream

_MOST = 0.8
_SHOWN = ("p50", "p95", "p99")
Run = dict[str, Any]


def offer(port: int, streams: Sequence[Stream], *, seconds: float, each: str | None = None) -> Run:
    """Offer `streams`, which begin for so many `seconds`, and return what is kept of it.

    `each`: a group of which every TTFT is kept, so that several runs can be taken together.
    """
    busy = BusyMeter()
    result = headway.lab.run(f"http://127.0.0.1:{port}", model=MODEL_NAME, streams=streams, slo=SLO)
    groups = grouped(result.exchanges, group_of)
    return {
        "seconds": seconds,
        "duration_s": rounded(result.summary.duration_s),
        "answered_rate": rounded(answered_rate(result.exchanges)),
        "believable": result.believable,
        "lag_p99_ms": rounded(result.lag_p99_ns / NS_PER_MS),
        "stolen": busy.stolen(),
        "load": load_average(),
        "unsent_turns": result.summary.num_unsent_turns,
        "all": figures(result.exchanges),
        "groups": {name: figures(found) for name, found in groups.items()} if len(groups) > 1 else {},
        "kinds": {name: figures(found) for name, found in grouped(result.exchanges, kind_of).items()},
        "sharing": sharing_json(sharing(groups)) if len(groups) > 1 else None,
    } | ({} if each is None else {"each_ttft_ms": each_ttft_ms(groups.get(each, []))})


def each_ttft_ms(exchanges: Sequence[Exchange]) -> list[float]:
    """Return every TTFT in milliseconds, of requests that succeeded, sorted."""
    return sorted(round(float(value) / NS_PER_MS, 1) for value in values(ttft_ns, exchanges).successes)


def answered_rate(exchanges: Sequence[Exchange]) -> float:
    """Return requests answered per second until four of five were: how a server runs dry is no rate."""
    ends = sorted(exchange.stamps.ended_ns for exchange in exchanges if exchange.ok)
    num = math.ceil(_MOST * len(ends))
    return num * NS_PER_S / (ends[num - 1] - min(map(due_ns, exchanges))) if num else 0.0


def figures(exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """Return counts, latencies in milliseconds and how many met the SLO."""
    ttft = values(ttft_ns, exchanges)
    good = goodput(parse_slo(SLO), exchanges)
    ok = [exchange for exchange in exchanges if exchange.ok]
    return {
        "offered": len(exchanges),
        **admission_json(admission(exchanges)),
        "ok": len(ok),
        "errors": failures(exchanges),
        "met": good.num_met,
        "ttft_ms": percentiles(ttft.successes, NS_PER_MS),
        "ttft_with_failures_ms": percentiles(ttft.all_requests, NS_PER_MS),
        "itl_ms": percentiles(itl_samples(ok)[0]),
        "output_tokens": sum(token_counts(exchange).total for exchange in ok),
        "cached_share": rounded(cached_share(exchanges)),
    }


def percentiles(samples: Sequence[float] | Floats, unit: float = 1.0) -> dict[str, Any]:
    """Return what is shown of samples, in `unit`, and how many are finite."""
    found = describe(np.asarray(samples, dtype=np.float64) / unit)
    return {name: rounded(found.percentiles[name]) for name in _SHOWN} | {"n": found.n}


def group_of(exchange: Exchange) -> str:
    """Return the group of a record's stream."""
    return exchange.stream.partition("/")[0]


def kind_of(exchange: Exchange) -> str:
    """Return the part of the mix that a record is of; of conversations the turn."""
    return f"turn {exchange.turn}" if exchange.label == "multi-turn" else exchange.label


def grouped(exchanges: Sequence[Exchange], key: Callable[[Exchange], str]) -> dict[str, list[Exchange]]:
    """Return the exchanges by a key, sorted by it."""
    groups: dict[str, list[Exchange]] = {}
    for exchange in exchanges:
        groups.setdefault(key(exchange), []).append(exchange)
    return {name: groups[name] for name in sorted(groups)}
