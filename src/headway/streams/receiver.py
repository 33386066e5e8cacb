"""The client's half of a stream: which events count, where to go on after a drop, what to acknowledge and when. No I/O.

It is the same for server-sent events and WebSockets. What it took stays taken whatever happens to connections: a drop, or a
second one before any event came, changes nothing here, and `cursor` is what the next connection asks for.
"""

from typing import Final, Literal

from headway.core.clock import NS_PER_MS
from headway.core.errors import ResyncRequired
from headway.streams.ids import START, Cursor

Verdict = Literal["take", "again", "gap"]
"""`take`: it is the next one; `again`: it was taken already; `gap`: those before it are missing, so it must come again."""

ACK_EVERY: Final = 16
ACK_AFTER_NS: Final = 100 * NS_PER_MS
"""A third of the time after which a sender begins to doubt (`delivery.MIN_WAIT_NS`)."""


class Receiver:
    """One stream, over all its connections.

    cursor   after the last event that was taken; nothing was taken yet at the beginning, where no epoch is known
    """

    __slots__ = ("_ack_due_ns", "_acked", "_epoch_is_known", "cursor")

    def __init__(self, cursor: Cursor = START) -> None:
        self.cursor = cursor
        self._epoch_is_known = cursor.seq > 0
        self._acked = cursor.seq
        self._ack_due_ns: int | None = None

    def connected(self, now_ns: int) -> None:
        """A connection is there, the first or another one: what the last one was told to acknowledge may be lost with it."""
        if self.cursor.seq:
            self._ack_due_ns = now_ns

    def event(self, at: Cursor, now_ns: int) -> Verdict:
        """An event came whose id says `at`. Raises ResyncRequired when its numbering is another than that of those taken."""
        if self._epoch_is_known and at.epoch != self.cursor.epoch:
            raise ResyncRequired("The stream was numbered anew; send the request again.")
        if at.seq <= self.cursor.seq:
            self._ack_due_ns = now_ns  # the sender does not know: the acknowledgement was lost, or is slow
            return "again"
        if at.seq > self.cursor.seq + 1:
            return "gap"
        self.cursor = at
        self._epoch_is_known = True
        if at.seq - self._acked >= ACK_EVERY:
            self._ack_due_ns = now_ns
        elif self._ack_due_ns is None:
            self._ack_due_ns = now_ns + ACK_AFTER_NS
        return "take"

    def ack_due_ns(self) -> int | None:
        """Return when `take_ack` will have something to tell; None = not before another event."""
        return self._ack_due_ns

    def take_ack(self, now_ns: int) -> Cursor | None:
        """Return what to acknowledge now, or None. Everything up to it is acknowledged, also what is told by a heartbeat."""
        if self._ack_due_ns is None or self._ack_due_ns > now_ns:
            return None
        return self.told()

    def told(self) -> Cursor | None:
        """Return what a message that goes out anyway may acknowledge; None = nothing was taken yet."""
        self._ack_due_ns = None
        self._acked = self.cursor.seq
        return self.cursor if self.cursor.seq else None
