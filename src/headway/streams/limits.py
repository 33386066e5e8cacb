"""How much streams may keep, and for how long. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from headway.streams.record import Entry

Positive = Annotated[int, msgspec.Meta(ge=1)]

CROWDED: Final = 0.75
"""The share of any bound on all streams together beyond which those that are over go before their time."""


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of a log.

    max_events, max_bytes              of one stream, not acknowledged: a client that acknowledges nothing gets an answer of
                                       8,192 events, twice what a chat generates unless asked for more
    max_total_events, max_total_bytes  of all streams together; `meta` counts as bytes
    max_streams                        that are not gone
    ttl_ms                             from a stream's end until it is gone, where there is room for so long
    settle_ms                          from a stream's end, however crowded it is (within `ttl_ms`): its reader is about to
                                       get the last events, or was just cut off and comes back for them
    remembered_ms                      from then on, until it is unknown
    lease_ms                           until others may take over a stream whose gateway says nothing
    """

    max_events: Positive = 8192
    max_bytes: Positive = 4 << 20
    max_total_events: Positive = 1 << 20
    max_total_bytes: Positive = 256 << 20
    max_streams: Positive = 16384
    ttl_ms: Positive = 300_000
    settle_ms: Positive = 10_000
    remembered_ms: Positive = 3_600_000
    lease_ms: Positive = 15_000


@dataclass(slots=True)
class Usage:
    """What is kept."""

    num_events: int = 0
    num_bytes: int = 0

    def add(self, num_events: int, num_bytes: int) -> None:
        """Count more, or less."""
        self.num_events += num_events
        self.num_bytes += num_bytes


def num_bytes_of(entries: Sequence[Entry]) -> int:
    """Return what `entries` count for against a bound of bytes."""
    return sum(entry.num_bytes for entry in entries)


def is_crowded(num_streams: int, total: Usage, limits: StreamLimits) -> bool:
    """Whether what is kept leaves too little room for streams that begin, or go on, before anybody looks again."""
    return (
        num_streams > CROWDED * limits.max_streams
        or total.num_events > CROWDED * limits.max_total_events
        or total.num_bytes > CROWDED * limits.max_total_bytes
    )


def fits(num_events: int, num_bytes: int, stream: Usage, total: Usage, limits: StreamLimits) -> bool:
    """Whether a stream may keep so much more. What comes at once always fits into a stream that keeps nothing."""
    fits_stream = stream.num_events == 0 or (
        stream.num_events + num_events <= limits.max_events
        and stream.num_bytes + num_bytes <= limits.max_bytes
    )
    return (
        fits_stream
        and total.num_events + num_events <= limits.max_total_events
        and total.num_bytes + num_bytes <= limits.max_total_bytes
    )
