"""How much streams may keep, and for how long. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from headway.streams.record import Entry

Positive = Annotated[int, msgspec.Meta(ge=1)]

CROWDED: Final = 0.75
"""The share of any bound on all streams together beyond which those that are over go before their time, and each owner has
an equal part."""


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of a log.

    max_events, max_bytes              of one stream, not acknowledged: a client that acknowledges nothing gets an answer of
                                       8,192 events, twice what a chat generates unless asked for more
    max_total_events, max_total_bytes  of all streams together; `meta` counts as bytes; see `has_room`
    max_streams                        that are not gone; likewise
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
    num_streams: int = 0

    def add(self, num_events: int, num_bytes: int, num_streams: int = 0) -> None:
        """Count more, or less."""
        self.num_events += num_events
        self.num_bytes += num_bytes
        self.num_streams += num_streams


def num_bytes_of(entries: Sequence[Entry]) -> int:
    """Return what `entries` count for against a bound of bytes."""
    return sum(entry.num_bytes for entry in entries)


def is_crowded(total: Usage, limits: StreamLimits) -> bool:
    """Whether what is kept leaves too little room for streams that begin, or go on, before anybody looks again."""
    return (
        total.num_streams > CROWDED * limits.max_streams
        or total.num_events > CROWDED * limits.max_total_events
        or total.num_bytes > CROWDED * limits.max_total_bytes
    )


@dataclass(slots=True)
class Shares:
    """What is kept of all, and of one owner among `num_owners` who have streams, himself included."""

    total: Usage
    own: Usage
    num_owners: int


def has_room(more: int, own: int, total: int, bound: int, num_owners: int) -> bool:
    """Whether an owner may have `more` of what `bound` bounds for all together.

    Until it is crowded whoever comes, from then on who has less than an equal part: nobody can fill a log for the others.
    """
    if total + more > bound:
        return False
    return total + more <= CROWDED * bound or (own + more) * num_owners <= bound


def may_begin(num_events: int, num_bytes: int, shares: Shares, limits: StreamLimits) -> bool:
    """Whether one more stream may begin that keeps so much at once, `meta` included."""
    own, total, num_owners = shares.own, shares.total, shares.num_owners
    return fits(num_events, num_bytes, Usage(), shares, limits) and has_room(
        1, own.num_streams, total.num_streams, limits.max_streams, num_owners
    )


def fits(num_events: int, num_bytes: int, stream: Usage, shares: Shares, limits: StreamLimits) -> bool:
    """Whether a stream may keep so much more. What comes at once always fits into a stream that keeps nothing."""
    own, total, num_owners = shares.own, shares.total, shares.num_owners
    fits_stream = stream.num_events == 0 or (
        stream.num_events + num_events <= limits.max_events
        and stream.num_bytes + num_bytes <= limits.max_bytes
    )
    return (
        fits_stream
        and has_room(num_events, own.num_events, total.num_events, limits.max_total_events, num_owners)
        and has_room(num_bytes, own.num_bytes, total.num_bytes, limits.max_total_bytes, num_owners)
    )
