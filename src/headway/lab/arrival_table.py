"""The tokens of many answers in arrays: what `lab/tokens.py` and `lab/latency.py` say of one, for a million tokens at once.

The definitions are theirs; tests hold both against each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.clock import NS_PER_MS
from headway.lab.distribution import Floats, Ints
from headway.lab.exchange import Exchange
from headway.lab.tokens import token_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalTable:
    """One row for each arrival of tokens, as `lab.tokens.arrivals` has them: request by request, stamps rising in each."""

    request: Ints
    """(num_arrivals,): the place of its exchange among those the table was made of."""
    at_ns: Ints
    num_tokens: Ints

    @property
    def is_first(self) -> NDArray[np.bool_]:
        """(num_arrivals,): whether it is its request's first."""
        return np.asarray(np.diff(self.request, prepend=-1) != 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalTable:
    """One row for each run of equal intervals, as `lab.latency.intervals` has them."""

    request: Ints
    at_ns: Ints
    """When the tokens came."""
    each_ns: Floats
    num_tokens: Ints


def arrival_table(exchanges: Sequence[Exchange]) -> ArrivalTable:
    """Return the arrivals of all `exchanges`."""
    at_ns: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    for exchange in exchanges:
        counted = token_counts(exchange).counts
        at_ns += [event.at_ns for event in exchange.text_events]
        counts += counted
        lengths.append(len(counted))
    request = np.repeat(np.arange(len(lengths)), lengths)
    stamps = np.asarray(at_ns, dtype=np.int64)
    new = (np.diff(request, prepend=-1) != 0) | (np.diff(stamps, prepend=0) != 0)
    starts = np.flatnonzero(new)
    num_tokens = np.add.reduceat(np.asarray(counts, dtype=np.int64), starts) if len(starts) else stamps[:0]
    return ArrivalTable(request=request[starts], at_ns=stamps[starts], num_tokens=num_tokens)


def interval_table(table: ArrivalTable) -> IntervalTable:
    """Return the inter-token intervals of a table of arrivals."""
    # An arrival without a token of its own adds its time to the next; the first of a request is where time begins.
    marks = np.flatnonzero(table.is_first | (table.num_tokens > 0))
    request, at_ns, num_tokens = table.request[marks], table.at_ns[marks], table.num_tokens[marks]
    first = np.diff(request, prepend=-1) != 0
    waited = np.diff(at_ns, prepend=0).astype(np.float64)
    last = np.flatnonzero(np.diff(request, append=-1) != 0)
    ends = np.flatnonzero(np.diff(table.request, append=-1) != 0)
    waited[last] += table.at_ns[ends] - at_ns[last]  # the time after the last token goes to the one before
    runs = ~first
    return IntervalTable(
        request=request[runs],
        at_ns=at_ns[runs],
        each_ns=waited[runs] / num_tokens[runs],
        num_tokens=num_tokens[runs],
    )


def itl_samples(ok: Sequence[Exchange]) -> tuple[Floats, Ints]:
    """Return ITL of each token of some requests, in milliseconds, and which of the requests it is of."""
    found = interval_table(arrival_table(ok))
    return np.repeat(found.each_ns / NS_PER_MS, found.num_tokens), np.repeat(found.request, found.num_tokens)
