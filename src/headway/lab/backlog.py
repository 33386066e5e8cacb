"""When who had work waiting: spans of time, and windows in which all had. Pure functions over exchanges.

A request waits from when it was due until its first token came, or until it was over if none did. One that was refused never
waited in the server. Spans are half open, in nanoseconds.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from headway.lab.exchange import Exchange
from headway.lab.latency import due_ns

Span = tuple[int, int]
"""From, and up to."""


def waiting_spans(exchanges: Iterable[Exchange]) -> list[Span]:
    """Return when at least one of `exchanges` waited, in order and apart."""
    spans = []
    for exchange in exchanges:
        failure, texts = exchange.answer.failure, exchange.text_events
        if failure is None or failure.kind not in ("refused", "status", "connection"):
            spans.append((due_ns(exchange), texts[0].at_ns if texts else exchange.stamps.ended_ns))
    return united(spans)


def united(spans: Iterable[Span]) -> list[Span]:
    """Return the union, in order and apart."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif start < end:
            found.append((start, end))
    return found


def common(parts: Sequence[Sequence[Span]]) -> list[Span]:
    """Return the times that lie in a span of every part; of no parts none. Each part is in order and apart."""
    edges = sorted({edge for part in parts for span in part for edge in span})
    places = [0] * len(parts)
    found = []
    for start, end in pairwise(edges):
        inside = True
        for index, part in enumerate(parts):
            while places[index] < len(part) and part[places[index]][1] <= start:
                places[index] += 1
            inside &= places[index] < len(part) and part[places[index]][0] <= start
        if inside:
            found.append((start, end))
    return united(found)


def windows(spans: Iterable[Span], length_ns: int) -> list[Span]:
    """Cut spans into windows of one length, each span from its start on; what is left of it is left out."""
    return [
        (at_ns, at_ns + length_ns)
        for start, end in spans
        for at_ns in range(start, end - length_ns + 1, length_ns)
    ]
