"""What latency means here: pure functions of one exchange; docs/lab.md states the definitions and how others differ.

Every figure is finite and not negative, or None where the exchange does not have it: a record that would make it negative
does not exist (`lab/exchange.py`). Figures are taken of failed requests as well, as far as those got; who counts is
decided in `lab/goodput.py`. Durations are nanoseconds.
"""

from dataclasses import dataclass
from itertools import pairwise

from headway.core.clock import NS_PER_S
from headway.lab.deltas import TEXT_KINDS
from headway.lab.exchange import Exchange
from headway.lab.tokens import TokenSource, arrivals, token_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """`num_tokens` tokens that came at intervals of `each_ns`."""

    each_ns: float
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The inter-token intervals of an answer, run by run. `source`: with `chunks` they are intervals between chunks."""

    source: TokenSource
    runs: tuple[Interval, ...]

    @property
    def num_tokens(self) -> int:
        """How many tokens have an interval: all but those of the first arrival."""
        return sum(run.num_tokens for run in self.runs)

    @property
    def mean_ns(self) -> float | None:
        """Mean over tokens; None = no token has an interval."""
        total_ns = sum(run.each_ns * run.num_tokens for run in self.runs)
        return total_ns / self.num_tokens if self.runs else None


def due_ns(exchange: Exchange) -> int:
    """When latency starts: the intended start, or the dispatch where a timer fired early, for nobody waited before that."""
    return min(exchange.stamps.intended_ns, exchange.stamps.dispatched_ns)


def lag_ns(exchange: Exchange) -> int:
    """How late the client was: dispatched − intended, 0 where it was early."""
    return exchange.stamps.dispatched_ns - due_ns(exchange)


def ttft_ns(exchange: Exchange) -> int | None:
    """Time to first token: first text, reasoning included, minus the intended start and without connection set-up."""
    return _until(exchange, 0, due_ns(exchange))


def ttft_from_dispatch_ns(exchange: Exchange) -> int | None:
    """The same from the dispatch: what the server can answer for when the client was late."""
    return _until(exchange, 0, exchange.stamps.dispatched_ns)


def e2e_ns(exchange: Exchange) -> int | None:
    """From the intended start to the last text, not to usage or `[DONE]`, without connection set-up."""
    return _until(exchange, -1, due_ns(exchange))


def e2e_from_dispatch_ns(exchange: Exchange) -> int | None:
    """The same from the dispatch."""
    return _until(exchange, -1, exchange.stamps.dispatched_ns)


def tpot_ns(exchange: Exchange) -> float | None:
    """Time per output token: (last − first) / (n − 1); None for one token, and for an answer that came all at once."""
    events, num_tokens = exchange.text_events, token_counts(exchange).total
    if num_tokens < 2 or events[-1].at_ns == events[0].at_ns:
        return None
    return (events[-1].at_ns - events[0].at_ns) / (num_tokens - 1)


def intervals(exchange: Exchange) -> Intervals:
    """Inter-token latency: the time between two arrivals, spread over the tokens of the later one.

    Tokens of the first arrival have no interval: when the first of them could have come is not known. An arrival without
    a whole token of its own adds its time to the next, after the last to the one before.
    """
    source, came = arrivals(exchange)
    runs: list[Interval] = []
    waited_ns = 0
    for previous, arrival in pairwise(came):
        waited_ns += arrival.at_ns - previous.at_ns
        if arrival.num_tokens:
            runs.append(Interval(each_ns=waited_ns / arrival.num_tokens, num_tokens=arrival.num_tokens))
            waited_ns = 0
    if waited_ns and runs:
        last = runs.pop()
        each_ns = last.each_ns + waited_ns / last.num_tokens
        runs.append(Interval(each_ns=each_ns, num_tokens=last.num_tokens))
    return Intervals(source=source, runs=tuple(runs))


def itl_ns(exchange: Exchange) -> float | None:
    """Mean inter-token latency of a request, the figure that an SLO on ITL is held against; the mean of `intervals`."""
    events = exchange.text_events
    if not events:
        return None
    counts, first_ns = token_counts(exchange).counts, events[0].at_ns
    num_later = sum(count for event, count in zip(events, counts, strict=True) if event.at_ns != first_ns)
    return (events[-1].at_ns - first_ns) / num_later if num_later else None


def output_rate(exchange: Exchange) -> float | None:
    """Tokens per second of one request as its user waits for them: n / E2E."""
    took_ns = e2e_ns(exchange)
    return token_counts(exchange).total * NS_PER_S / took_ns if took_ns else None


def _until(exchange: Exchange, index: int, start_ns: int) -> int | None:
    """Return the time from `start_ns` to the first text (`index` 0) or the last (-1)."""
    events = exchange.answer.events if index == 0 else reversed(exchange.answer.events)
    text = next((event for event in events if event.kind in TEXT_KINDS), None)
    return None if text is None else text.at_ns - start_ns - exchange.stamps.setup_ns
