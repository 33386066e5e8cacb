"""Writes one stream into its log, for the holder of its lease: pauses while the log is full, gives up after a bound.

An error overtakes what is not yet numbered: `fail` from another task ends a `write` that waits for room, whose entries are
dropped; what is numbered stays before it.
"""

import asyncio
from collections.abc import Sequence

from headway.core.clock import NS_PER_S, Clock
from headway.core.errors import StreamLogUnavailable, StreamUnread
from headway.streams.log import LeaseLost, StreamLog
from headway.streams.pressure import PATIENCE_NS, Pressure, after_attempt, patience_left_ns
from headway.streams.record import EndState, Entry, Lease, check_position


class StreamOver(Exception):
    """The stream has its last event; what was to be written is dropped."""


class StreamWriter:
    """The end of a stream that makes events. `last_seq`: the last number that is in the log."""

    def __init__(
        self, log: StreamLog, lease: Lease, last_seq: int, *, clock: Clock, patience_ns: int = PATIENCE_NS
    ) -> None:
        self.last_seq = last_seq
        self._log = log
        self._lease = lease
        self._clock = clock
        self._patience_ns = patience_ns
        self._turn = asyncio.Lock()
        self._is_over = False
        self._is_unsure = False

    async def write(self, entries: Sequence[Entry], progress: bytes = b"") -> None:
        """Append, waiting for room. Raises StreamUnread when there was none for too long, LeaseLost, StreamOver.

        After StreamUnread the stream is still open, and after StreamLogUnavailable nobody knows whether `entries` are in the
        log: `fail` it, or leave it to whoever takes it over.
        """
        if await self._append(entries, progress, None):
            return
        pressure = Pressure()
        with self._log.room.subscribe(self._lease.stream_id) as room:
            while True:
                accepted = await self._append(entries, progress, None)
                now_ns = self._clock.now_ns()
                pressure, answer = after_attempt(
                    pressure, accepted=accepted, now_ns=now_ns, patience_ns=self._patience_ns
                )
                if answer == "go_on":
                    return
                if answer == "fail":
                    raise StreamUnread("The stream's events were not acknowledged for too long.")
                left_s = patience_left_ns(pressure, now_ns, self._patience_ns) / NS_PER_S
                timer = asyncio.get_running_loop().call_later(left_s, room.notify)
                try:
                    await room.wait()
                finally:
                    timer.cancel()

    async def end(self, entries: Sequence[Entry], progress: bytes = b"") -> None:
        """Append the last entries; there is always room for them. Raises LeaseLost, StreamOver."""
        await self._append(entries, progress, "ended")

    async def fail(self, *entries: Entry) -> None:
        """Let these be the last events, now; a `write` that waits ends with StreamOver. Raises LeaseLost, StreamOver."""
        await self._append(entries, b"", "failed")
        self._log.room.notify(self._lease.stream_id)

    async def renew(self) -> None:
        """Keep the lease while nothing is written. Raises LeaseLost."""
        await self._log.renew(self._lease)

    async def _append(self, entries: Sequence[Entry], progress: bytes, end: EndState | None) -> bool:
        if self._log.appends_at_once:
            return await self._append_in_turn(entries, progress, end)
        # A caller that is cancelled must not leave `last_seq` behind the log, so the append goes on without him.
        return await asyncio.shield(asyncio.ensure_future(self._append_in_turn(entries, progress, end)))

    async def _append_in_turn(self, entries: Sequence[Entry], progress: bytes, end: EndState | None) -> bool:
        async with self._turn:
            if self._is_over:
                raise StreamOver
            if self._is_unsure:
                await self._look()
            try:
                last_seq = await self._log.append(self._lease, self.last_seq, entries, progress, end)
            except StreamLogUnavailable:
                self._is_unsure = True
                raise
            if last_seq is None:
                return False
            self.last_seq = last_seq
            self._is_over = end is not None
            return True

    async def _look(self) -> None:
        """Find out which event is the last one, after an append of ours that was not answered."""
        record = await self._log.find(self._lease.stream_id)
        if record is None or record.state != "open":
            raise LeaseLost(self._lease.stream_id)
        check_position(record.acked, record.last_seq, self.last_seq)
        self.last_seq = record.last_seq
        self._is_unsure = False
