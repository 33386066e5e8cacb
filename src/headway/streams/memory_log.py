"""A log in the memory of this process: it survives its clients, not itself."""

from collections.abc import Callable, Sequence

from headway.streams.feed import Feed
from headway.streams.limits import StreamLimits
from headway.streams.record import EndState, Entry, Lease, Page, Recovery, StreamRecord
from headway.streams.table import StreamTable


class MemoryLog:
    """A `StreamLog`. `now_ms`: wall-clock milliseconds."""

    appends_at_once = True

    def __init__(self, limits: StreamLimits, now_ms: Callable[[], int]) -> None:
        self.news = Feed()
        self.room = Feed()
        self._now_ms = now_ms
        self._table = StreamTable(limits, now_ms)
        self._progress: dict[str, list[bytes]] = {}

    async def create(
        self, stream_id: str, owner: str, meta: bytes, entries: Sequence[Entry] = (), progress: bytes = b""
    ) -> Lease:
        """Begin a stream."""
        self._table.check_new(stream_id, owner, meta, entries)
        record = StreamRecord(stream_id=stream_id, owner=owner, created_ms=self._now_ms(), meta=meta)
        if progress:
            self._progress[stream_id] = [progress]
        self.news.notify(stream_id)
        return self._table.take(self._table.add(record, entries))

    async def append(
        self,
        lease: Lease,
        after: int,
        entries: Sequence[Entry],
        progress: bytes = b"",
        end: EndState | None = None,
    ) -> int | None:
        """Append at once."""
        if not self._table.may_append(lease, after, entries, end):
            return None
        last_seq = self._table.append(lease, entries, end)
        if end is not None:
            self._progress.pop(lease.stream_id, None)
        elif progress:
            self._progress.setdefault(lease.stream_id, []).append(progress)
        self.news.notify(lease.stream_id)
        return last_seq

    async def find(self, stream_id: str) -> StreamRecord | None:
        """Return what is known of a stream."""
        stream = self._table.get(stream_id)
        return None if stream is None else stream.record()

    async def read(self, stream_id: str, epoch: int, after: int, limit: int) -> Page:
        """Read from memory."""
        return self._table.read(stream_id, epoch, after, limit)

    async def ack(self, stream_id: str, epoch: int, seq: int) -> None:
        """Drop events."""
        if self._table.ack(stream_id, epoch, seq):
            self.room.notify(stream_id)

    async def renew(self, lease: Lease) -> None:
        """Prolong a lease."""
        self._table.renew(lease)

    async def orphans(self) -> list[str]:
        """Return open streams that nobody holds."""
        return self._table.orphans()

    async def take_over(self, stream_id: str) -> Recovery | None:
        """Hold an orphan."""
        stream = self._table.orphan(stream_id)
        if stream is None:
            return None
        return Recovery(self._table.take(stream), stream.record(), tuple(self._progress.get(stream_id, ())))

    async def new_epoch(self, lease: Lease) -> int:
        """Begin anew."""
        epoch = self._table.new_epoch(lease)
        self._progress.pop(lease.stream_id, None)
        self.news.notify(lease.stream_id)
        self.room.notify(lease.stream_id)
        return epoch

    async def remove(self, stream_id: str) -> None:
        """Let a stream be gone."""
        if self._table.remove(stream_id):
            self._progress.pop(stream_id, None)
            self.news.notify(stream_id)
            self.room.notify(stream_id)

    async def expire(self) -> int:
        """Let old streams be gone, forget older ones."""
        over, gone = self._table.expired()
        for stream_id in over:
            await self.remove(stream_id)
        for stream_id in gone:
            self._table.forget(stream_id)
        return len(over)

    async def close(self) -> None:
        """Nothing to let go of."""
