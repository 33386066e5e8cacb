"""Streams in memory: the rules of a log as one object, without waiting, threads or storage. Its users say what time it is.

`now_ms` is wall-clock time, since it must mean the same to the next process.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from headway.core.errors import InvalidRequest, StreamLogFull
from headway.streams.ids import stream_not_found
from headway.streams.limits import Shares, StreamLimits, Usage, fits, is_crowded, may_begin, num_bytes_of
from headway.streams.log import LeaseLost, StreamExists
from headway.streams.record import (
    EndState,
    Entry,
    Event,
    Lease,
    Page,
    StreamRecord,
    StreamState,
    check_position,
    move,
    stale_epoch,
)


class StoredStream:
    """One stream. `events`: those not acknowledged, `acked + 1` to `last_seq`; `due_ms`: when its state ends by itself.

    Of a stream that is over, as most that are kept are, `events` is a tuple: that, too, Python's collector passes by.
    """

    __slots__ = (
        "acked", "created_ms", "due_ms", "epoch", "events", "fence", "meta", "num_bytes", "owner", "state", "stream_id",
    )  # fmt: skip

    def __init__(self, record: StreamRecord, due_ms: int) -> None:
        self.stream_id = record.stream_id
        self.owner = record.owner
        self.created_ms = record.created_ms
        self.meta = record.meta
        self.epoch = record.epoch
        self.state: StreamState = record.state
        self.acked = record.acked
        self.fence = 0
        self.due_ms = due_ms
        self.events: list[Entry] | tuple[Entry, ...] = []
        self.num_bytes = 0

    @property
    def last_seq(self) -> int:
        """The last event's number."""
        return self.acked + len(self.events)

    def record(self) -> StreamRecord:
        """Describe it as it is now."""
        return StreamRecord(
            stream_id=self.stream_id,
            owner=self.owner,
            created_ms=self.created_ms,
            meta=self.meta,
            epoch=self.epoch,
            state=self.state,
            acked=self.acked,
            last_seq=self.last_seq,
        )


class StreamTable:
    """All streams. Those that are over and those that are gone lie in the order in which their time comes."""

    def __init__(self, limits: StreamLimits, now_ms: Callable[[], int]) -> None:
        self._limits = limits
        self._now_ms = now_ms
        self._open: dict[str, StoredStream] = {}
        self._over: OrderedDict[str, StoredStream] = OrderedDict()
        self._gone: OrderedDict[str, StoredStream] = OrderedDict()
        self._total = Usage()
        self._owners: dict[str, Usage] = {}  # of those who have streams that are not gone

    def get(self, stream_id: str) -> StoredStream | None:
        """Return a stream, or None."""
        return self._open.get(stream_id) or self._over.get(stream_id) or self._gone.get(stream_id)

    def due_ms(self, state: StreamState | None) -> int:
        """Return when what begins now ends by itself: a lease, for None; else the state a stream enters."""
        limits = self._limits
        lasts_ms = (
            limits.lease_ms if state is None else limits.remembered_ms if state == "gone" else limits.ttl_ms
        )
        return self._now_ms() + lasts_ms

    def check_new(self, stream_id: str, owner: str, meta: bytes, entries: Sequence[Entry]) -> None:
        """Raise StreamExists unless the id is new, StreamLogFull unless one more stream may begin with all this."""
        if self.get(stream_id) is not None:
            raise StreamExists(stream_id)
        num_bytes = len(meta) + num_bytes_of(entries)
        if not may_begin(len(entries), num_bytes, self._shares(owner), self._limits):
            raise StreamLogFull("Too many resumable streams are kept; retry later, or without resuming.")

    def add(self, record: StreamRecord, events: Sequence[Entry] = (), due_ms: int = 0) -> StoredStream:
        """Put a stream in, as it was before a restart or as new."""
        stream = StoredStream(record, due_ms)
        if record.state == "gone":
            self._gone[record.stream_id] = stream
            return stream
        stream.events = list(events) if record.state == "open" else tuple(events)
        stream.num_bytes = num_bytes_of(events)
        self._count(record.owner, len(events), stream.num_bytes + len(record.meta), 1)
        (self._open if record.state == "open" else self._over)[record.stream_id] = stream
        return stream

    def take(self, stream: StoredStream) -> Lease:
        """Give the lease of an open stream to a new holder."""
        stream.fence += 1
        stream.due_ms = self.due_ms(None)
        return Lease(stream.stream_id, stream.fence)

    def held(self, lease: Lease) -> StoredStream:
        """Return the stream whose lease this is; raises LeaseLost."""
        stream = self._open.get(lease.stream_id)
        if stream is None or stream.fence != lease.fence:
            raise LeaseLost(lease.stream_id)
        return stream

    def renew(self, lease: Lease) -> None:
        """As `StreamLog.renew`."""
        self.held(lease).due_ms = self.due_ms(None)

    def may_append(self, lease: Lease, after: int, entries: Sequence[Entry], end: EndState | None) -> bool:
        """Whether an append would be taken; False = full. Raises LeaseLost, ResyncRequired."""
        stream = self.held(lease)
        if after != stream.last_seq:
            check_position(stream.acked, stream.last_seq, after)
            raise stale_epoch()
        usage, shares = Usage(len(stream.events), stream.num_bytes), self._shares(stream.owner)
        return end is not None or fits(len(entries), num_bytes_of(entries), usage, shares, self._limits)

    def append(self, lease: Lease, entries: Sequence[Entry], end: EndState | None) -> int:
        """Carry out an append that may be; return the last number. Raises LeaseLost."""
        stream = self.held(lease)
        num_bytes = num_bytes_of(entries)
        assert isinstance(stream.events, list)  # it is open
        stream.events += entries
        stream.num_bytes += num_bytes
        self._count(stream.owner, len(entries), num_bytes)
        stream.due_ms = self.due_ms(end)
        if end is not None:
            stream.state = move(stream.state, end)
            stream.events = tuple(stream.events)
            self._over[stream.stream_id] = self._open.pop(stream.stream_id)
        return stream.last_seq

    def read(self, stream_id: str, epoch: int, after: int, limit: int) -> Page:
        """As `StreamLog.read`."""
        stream = self._kept(stream_id, epoch)
        check_position(stream.acked, stream.last_seq, after)
        begin = after - stream.acked
        entries = stream.events[begin : begin + limit]
        events = tuple(Event(seq, entry) for seq, entry in enumerate(entries, after + 1))
        return Page(events, stream.state != "open" and after + len(entries) == stream.last_seq)

    def ack(self, stream_id: str, epoch: int, seq: int) -> bool:
        """As `StreamLog.ack`; return whether that made room."""
        stream = self._kept(stream_id, epoch)
        if seq > stream.last_seq:
            raise never_was(seq)
        num_events = seq - stream.acked
        if num_events <= 0:
            return False
        num_bytes = num_bytes_of(stream.events[:num_events])
        stream.events = stream.events[num_events:]
        stream.acked = seq
        stream.num_bytes -= num_bytes
        self._count(stream.owner, -num_events, -num_bytes)
        return True

    def orphans(self) -> list[str]:
        """As `StreamLog.orphans`."""
        now_ms = self._now_ms()
        return [stream_id for stream_id, stream in self._open.items() if stream.due_ms <= now_ms]

    def orphan(self, stream_id: str) -> StoredStream | None:
        """Return an open stream whose lease ran out, or None."""
        stream = self._open.get(stream_id)
        return stream if stream is not None and stream.due_ms <= self._now_ms() else None

    def new_epoch(self, lease: Lease) -> int:
        """As `StreamLog.new_epoch`."""
        stream = self.held(lease)
        self._drop_events(stream)
        stream.acked = 0
        stream.epoch += 1
        return stream.epoch

    def remove(self, stream_id: str) -> bool:
        """As `StreamLog.remove`; return whether it was there."""
        stream = self._open.pop(stream_id, None) or self._over.pop(stream_id, None)
        if stream is None:
            return False
        last_seq = stream.last_seq
        self._drop_events(stream)
        self._count(stream.owner, 0, -len(stream.meta), -1)
        stream.meta = b""
        stream.acked = last_seq
        stream.state = move(stream.state, "gone")
        stream.due_ms = self.due_ms("gone")
        self._gone[stream_id] = stream
        return True

    def expired(self) -> tuple[list[str], list[str]]:
        """Return streams that are over and should be gone, and streams that are gone and should be forgotten.

        Where it is crowded, those that ended first go before their time, once they have settled. No more names are
        remembered than streams may be kept: the oldest are forgotten before theirs.
        """
        now_ms = self._now_ms()
        num_too_many = max(0, len(self._gone) - self._limits.max_streams)
        forgotten = dict.fromkeys([*islice(self._gone, num_too_many), *_due(self._gone, now_ms)])
        return self._leaving(now_ms), list(forgotten)

    def forget(self, stream_id: str) -> None:
        """Let a stream that is gone be unknown."""
        del self._gone[stream_id]

    def _leaving(self, now_ms: int) -> list[str]:
        leaving: list[str] = []
        left = replace(self._total)
        settled_ms = now_ms + self._limits.ttl_ms - self._limits.settle_ms
        for stream_id, stream in self._over.items():
            may_leave = stream.due_ms <= settled_ms and is_crowded(left, self._limits)
            if stream.due_ms > now_ms and not may_leave:
                break
            leaving.append(stream_id)
            left.add(-len(stream.events), -(stream.num_bytes + len(stream.meta)), -1)
        return leaving

    def _kept(self, stream_id: str, epoch: int) -> StoredStream:
        stream = self.get(stream_id)
        if stream is None:
            raise stream_not_found()
        if stream.state == "gone" or epoch != stream.epoch:
            raise stale_epoch()
        return stream

    def _drop_events(self, stream: StoredStream) -> None:
        self._count(stream.owner, -len(stream.events), -stream.num_bytes)
        stream.events = []
        stream.num_bytes = 0

    def _count(self, owner: str, num_events: int, num_bytes: int, num_streams: int = 0) -> None:
        own = self._owners.setdefault(owner, Usage())
        for usage in (self._total, own):
            usage.add(num_events, num_bytes, num_streams)
        if not own.num_streams:
            del self._owners[owner]

    def _shares(self, owner: str) -> Shares:
        own = self._owners.get(owner)
        return Shares(self._total, own or Usage(), len(self._owners) + (own is None))


def never_was(seq: int) -> InvalidRequest:
    """Return the error for an acknowledgement of an event there has never been."""
    return InvalidRequest(f"There is no event {seq} to acknowledge yet.", param="seq")


def _due(streams: OrderedDict[str, StoredStream], now_ms: int) -> list[str]:
    due = []
    for stream_id, stream in streams.items():
        if stream.due_ms > now_ms:
            break
        due.append(stream_id)
    return due
