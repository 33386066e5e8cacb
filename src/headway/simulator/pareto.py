"""The trade between throughput and latency on a machine: which settings no other beats in both.

A sweep runs a closed load of more and more users, each with several sizes of the prompts' part of a step. A setting is on
the frontier if none of the same machine's others has at least its throughput and at most its latency, one of the two better.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.distribution import percentile
from headway.lab.exchange import Exchange
from headway.lab.latency import e2e_ns, ttft_ns
from headway.lab.run_options import RunOptions
from headway.lab.token_estimate import TokenCounter
from headway.simulator.loader import Service
from headway.simulator.prompts import PromptMaker
from headway.simulator.simulation import records

LEAST_REQUESTS = 64
ROUNDS = 4
"""Requests of each user, so that the run is mostly steady."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is varied: how many ask at a time, and most prompt tokens of a step."""

    num_users: int
    max_prefill_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a setting gives. Milliseconds; tokens a second of all replicas together."""

    device: str
    setting: Setting
    output_tok_s: float
    e2e_p95_ms: float
    ttft_p95_ms: float
    itl_p95_ms: float


def sweep(
    device: str,
    service: Service,
    prompts: PromptMaker,
    like: RunOptions,
    settings: Iterable[Setting],
    *,
    count_tokens: TokenCounter | None = None,
    on_point: Callable[[Point], None] = lambda _: None,
) -> list[Point]:
    """Return what each setting gives on a machine; those at which no request succeeds are left out."""
    points = []
    for setting in settings:
        scheduler = msgspec.structs.replace(
            service.scheduler,
            max_prefill_tokens=setting.max_prefill_tokens,
            max_num_seqs=max(service.scheduler.max_num_seqs, setting.num_users),
        )
        options = replace(
            like,
            arrival=f"closed:{setting.num_users}",
            num_requests=max(LEAST_REQUESTS, ROUNDS * setting.num_users),
        )
        found = records(options, replace(service, scheduler=scheduler), prompts, count_tokens=count_tokens)
        point = _point(device, setting, [exchange for exchange in found if exchange.ok])
        if point is not None:
            points.append(point)
            on_point(point)
    return points


def frontier(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats, by rising throughput."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (-p.output_tok_s, p.e2e_p95_ms)):
        if not kept or point.e2e_p95_ms < kept[-1].e2e_p95_ms:
            kept.append(point)
    return kept[::-1]


def _point(device: str, setting: Setting, ok: Sequence[Exchange]) -> Point | None:
    if not ok:
        return None
    last_ns = max(exchange.stamps.ended_ns for exchange in ok)
    duration_ns = last_ns - min(exchange.stamps.intended_ns for exchange in ok)
    gaps = [
        after.at_ns - before.at_ns for exchange in ok for before, after in pairwise(exchange.answer.events)
    ]
    return Point(
        device=device,
        setting=setting,
        output_tok_s=sum(len(exchange.answer.events) for exchange in ok) * NS_PER_S / duration_ns,
        e2e_p95_ms=_p95_ms([e2e_ns(exchange) or 0 for exchange in ok]),
        ttft_p95_ms=_p95_ms([ttft_ns(exchange) or 0 for exchange in ok]),
        itl_p95_ms=_p95_ms(gaps) if gaps else 0.0,
    )


def _p95_ms(values_ns: Sequence[int]) -> float:
    return percentile(np.sort(np.asarray(values_ns, dtype=np.float64)), 0.95) / NS_PER_MS
