"""Latency against the number of requests in flight, as the client sees it (L13). Pure functions over exchanges.

A request is in flight from when it was due until it was over, whatever became of it; what a server had queued of it counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.core.clock import NS_PER_S
from headway.lab.arrival_table import arrival_table
from headway.lab.distribution import Distribution, Floats, Ints, describe
from headway.lab.exchange import Exchange
from headway.lab.figures import Figure, distribution_json, figure, figure_json, rounded
from headway.lab.latency import due_ns, e2e_ns, output_rate, tpot_ns, ttft_ns
from headway.lab.rates import TokensUntil
from headway.lab.warm_up import WarmUp

_NO_WARM_UP = WarmUp()


class InFlight:
    """How many requests were in flight when."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        starts = np.sort(np.asarray([due_ns(exchange) for exchange in exchanges], dtype=np.int64))
        ends = np.sort(np.asarray([exchange.stamps.ended_ns for exchange in exchanges], dtype=np.int64))
        self.times = np.unique(np.concatenate([starts, ends]))
        """When the number changes."""
        started = np.searchsorted(starts, self.times, side="right")
        self.numbers = started - np.searchsorted(ends, self.times, side="right")
        """From each of these times on; a request that took no time is never in flight."""
        gone = self.numbers[:-1] * np.diff(self.times)
        self._integral = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(gone)])

    def mean(self, from_ns: Ints, to_ns: Ints) -> Floats:
        """Return the mean numbers over spans of time; of a span of no time the number that was in flight then."""
        spans = to_ns - from_ns
        over = (self._until(to_ns) - self._until(from_ns)) / np.maximum(1, spans)
        place = np.searchsorted(self.times, from_ns, side="right") - 1
        return np.where(spans > 0, over, np.where(place >= 0, self.numbers[place], 0))

    def _until(self, at_ns: Ints) -> Ints:
        """Return the number's integral up to each time, 0 before the first request."""
        place = np.searchsorted(self.times, at_ns, side="right") - 1
        since = self._integral[place] + self.numbers[place] * (at_ns - self.times[place])
        return np.where(place >= 0, since, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The requests that had on average between `least` and `most` in flight, themselves included, while they ran."""

    least: int
    most: int
    num_ok: int
    ttft: Figure
    tpot: Figure
    e2e: Figure
    request_tok_s: Distribution
    """Tokens per second as one user gets them: n ÷ E2E."""
    duration_s: float
    """For how long so many were in flight."""
    output_tok_s: float | None
    """Tokens per second of all together in that time, of requests that succeeded."""


def by_concurrency(exchanges: Sequence[Exchange], warm_up: WarmUp = _NO_WARM_UP) -> tuple[Crowd, ...]:
    """Return the curve in rising order: 1, 2, 3 to 4, 5 to 8, 9 to 16 and so on, as far as so many ever were."""
    if not exchanges:
        return ()
    in_flight = InFlight(exchanges)
    due = np.asarray([due_ns(exchange) for exchange in exchanges], dtype=np.int64)
    ended = np.asarray([exchange.stamps.ended_ns for exchange in exchanges], dtype=np.int64)
    levels = _levels(in_flight.mean(due, ended))
    level_in_time = np.where(
        in_flight.numbers[:-1] > 0, _levels(in_flight.numbers[:-1].astype(np.float64)), -1
    )
    passed_ns = np.diff(in_flight.times)
    came = _came(exchanges, in_flight.times)
    found = []
    for level in np.union1d(levels, level_in_time[level_in_time >= 0]).tolist():
        within = [exchange for exchange, own in zip(exchanges, levels, strict=True) if own == level]
        kept = [exchange for exchange in within if warm_up.keeps(exchange)]
        rates = [output_rate(exchange) for exchange in kept if exchange.ok]
        then = level_in_time == level
        lasted_ns = int(passed_ns[then].sum())
        found.append(
            Crowd(
                least=2 ** (level - 1) + 1 if level else 1,
                most=2**level,
                num_ok=sum(exchange.ok for exchange in within),
                ttft=figure(ttft_ns, kept),
                tpot=figure(tpot_ns, kept),
                e2e=figure(e2e_ns, kept),
                request_tok_s=describe([rate for rate in rates if rate is not None]),
                duration_s=lasted_ns / NS_PER_S,
                output_tok_s=float(came[then].sum()) * NS_PER_S / lasted_ns if lasted_ns else None,
            )
        )
    return tuple(found)


def by_concurrency_json(crowds: Sequence[Crowd]) -> list[dict[str, object]]:
    """Return the curve as JSON's types."""
    return [
        {
            "least": crowd.least,
            "most": crowd.most,
            "n": crowd.num_ok,
            "ttft_ms": figure_json(crowd.ttft),
            "tpot_ms": figure_json(crowd.tpot),
            "e2e_ms": figure_json(crowd.e2e),
            "request_tok_s": distribution_json(crowd.request_tok_s),
            "duration_s": rounded(crowd.duration_s),
            "output_tok_s": rounded(crowd.output_tok_s),
        }
        for crowd in crowds
    ]


def _levels(numbers: Floats) -> Ints:
    """Return the level of each number, rounded: 0 is 1 in flight, 1 is 2, 2 is 3 to 4, 3 is 5 to 8."""
    whole = np.maximum(1.0, np.rint(numbers))
    return np.ceil(np.log2(whole)).astype(np.int64)


def _came(exchanges: Sequence[Exchange], times: Ints) -> Floats:
    """Return the tokens of successes that came between each two of `times`."""
    table = arrival_table([exchange for exchange in exchanges if exchange.ok])
    if not len(table.at_ns):
        return np.zeros(max(0, len(times) - 1))
    until = TokensUntil(table).until(times)
    until[0] = 0.0  # what came at the very start came within the first span
    return np.maximum(0.0, np.diff(until))
