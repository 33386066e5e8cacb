"""What a log of streams promises, wherever it keeps them.

- What `append` returned is kept, whole: events, progress and end of one append, or none of them. Only then does anybody
  read it. So *append, then send* shows no client what a restart would not know.
- Only the holder of a stream's lease appends, after the event he takes for the last one. Whoever lost the lease, or takes
  another event for the last one because the log forgot some, changes nothing.
- A reader either gets every event after his, in order, or ResyncRequired.

Every method may raise StreamLogUnavailable; then nothing was changed, except by a log on another machine that did not
answer in time. Names of streams are taken as they are: `check_stream_id` comes before.
"""

from collections.abc import Sequence
from typing import Protocol

from headway.streams.feed import Feed
from headway.streams.record import EndState, Entry, Lease, Page, Recovery, StreamRecord


class LeaseLost(Exception):
    """Somebody else has the stream now, or it is over, or gone: its holder must stop."""


class StreamExists(RuntimeError):
    """A bug: an id came twice. A source of randomness that repeats itself must not give one client another's stream."""


class StreamLog(Protocol):
    """Keeps streams. `news`: events or an end came; `room`: acknowledged events made room.

    appends_at_once   `append` waits for nothing, so that nothing can happen between its beginning and its end
    """

    news: Feed
    room: Feed
    appends_at_once: bool

    async def create(
        self, stream_id: str, owner: str, meta: bytes, entries: Sequence[Entry] = (), progress: bytes = b""
    ) -> Lease:
        """Begin an open stream, with what it begins with: as one `append`, at the price of one.

        Raises StreamLogFull where there is no room for all of it; StreamExists for an id that is known, even of one that is
        gone.
        """
        ...

    async def append(
        self,
        lease: Lease,
        after: int,
        entries: Sequence[Entry],
        progress: bytes = b"",
        end: EndState | None = None,
    ) -> int | None:
        """Number `entries` from `after` + 1 and keep them; return the last number, or None, changing nothing: it is full.

        With `end` these are the last entries, and there is always room for them. It also prolongs the lease. Raises
        LeaseLost; ResyncRequired where `after` is not the last event, since the log lost some or has more.
        """
        ...

    async def find(self, stream_id: str) -> StreamRecord | None:
        """Return what is known of a stream; None = nothing."""
        ...

    async def read(self, stream_id: str, epoch: int, after: int, limit: int) -> Page:
        """Return at most `limit` events that follow number `after`. Raises StreamNotFound, ResyncRequired."""
        ...

    async def ack(self, stream_id: str, epoch: int, seq: int) -> None:
        """Drop all events up to `seq`; those before the last acknowledgement are gone already.

        Raises StreamNotFound, ResyncRequired for another epoch, InvalidRequest for an event there has never been.
        """
        ...

    async def renew(self, lease: Lease) -> None:
        """Prolong a lease. Raises LeaseLost."""
        ...

    async def orphans(self) -> list[str]:
        """Return open streams whose lease ran out, first ones first; of many perhaps not all at once."""
        ...

    async def take_over(self, stream_id: str) -> Recovery | None:
        """Become the holder of an orphan; None = it is none, or none any more."""
        ...

    async def new_epoch(self, lease: Lease) -> int:
        """Forget all events and progress, number from 1 again, and return the new epoch. Raises LeaseLost."""
        ...

    async def remove(self, stream_id: str) -> None:
        """Let a stream be gone, whatever its state; of one that is unknown or gone nothing changes."""
        ...

    async def expire(self) -> int:
        """Let streams be gone whose time is over, forget those gone for long; return how many went. Called now and then.

        Where what is kept comes near its bounds, streams that are over go before their time, those first that ended
        first; none that has only just ended (`limits.settle_ms`).
        """
        ...

    async def close(self) -> None:
        """Let go of files, threads and connections."""
        ...
