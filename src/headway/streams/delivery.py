"""The sender's half of a stream on a WebSocket: what to send, what to send again, when to leave it. No I/O, clock or data.

TCP delivers in order as long as the connection lives, so a resend helps only where something between the two ends took a
message and lost it, a proxy for one; it must never add load to a path that is merely slow. Hence the rules (issue 7):
nothing is sent again while the socket's buffer holds bytes, nothing before 300 ms and two smoothed round trips have passed
without an acknowledgement, each kind of event so often and no oftener, and after three losses in a row nothing at all:
then the transport, and a new connection that goes on from the client's cursor, must do.

Its user calls one method for what happened and carries out the actions it returns, in order; `deadline_ns` says when to call
`tick` if nothing happens before. Events that are sent and not acknowledged cost a few words each; `num_free` bounds them.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from headway.core.clock import NS_PER_MS
from headway.streams.record import EventKind
from headway.streams.round_trip import RoundTrip

DeliveryState = Literal["detached", "flowing", "stalled", "left"]
Input = Literal["attach", "progress", "loss", "losses", "detach"]

TRANSITIONS: Final[dict[DeliveryState, dict[Input, DeliveryState]]] = {
    "detached": {"attach": "flowing"},
    "flowing": {"attach": "flowing", "progress": "flowing", "loss": "stalled", "detach": "detached"},
    "stalled": {
        "attach": "flowing", "progress": "flowing", "loss": "stalled", "losses": "left", "detach": "detached",
    },
    "left": {"attach": "flowing", "progress": "flowing", "detach": "detached"},
}  # fmt: skip
"""`flowing`: events go out, acknowledgements come; `stalled`: the oldest event was not acknowledged in time; `left`: nothing
is sent again until an acknowledgement, or the next connection. New events are sent in all three. `losses`: one too many."""


@dataclass(frozen=True, slots=True)
class Resending:
    """How often events of a kind are sent again, and by what each wait is longer than the one before."""

    max_resends: int
    factor: float


RESENDING: Final[dict[EventKind, Resending]] = {
    "content": Resending(2, 1.5),
    "control": Resending(5, 1.0),
    "error": Resending(5, 1.0),  # it gives the stream its shape as much as an end does
}
MIN_WAIT_NS: Final = 300 * NS_PER_MS
MAX_LOSSES: Final = 3
MAX_UNACKNOWLEDGED: Final = 512
"""Twelve seconds of a fast stream: enough for any round trip, and 50 KB for a client that acknowledges nothing."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send event `seq` for the first time on this connection."""

    seq: int


@dataclass(frozen=True, slots=True)
class Resend:
    """Send event `seq` again."""

    seq: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """Count a loss: the oldest event was not acknowledged in time."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is sent again from now on: leave it to the transport."""


Action = Send | Resend | Stalled | Leave


class IllegalInput(RuntimeError):
    """A bug: something was said to have happened that cannot happen now."""


class _Sent:
    """An event that is out. `sent_ns`: when last."""

    __slots__ = ("kind", "num_resends", "sent_ns", "seq")

    def __init__(self, seq: int, kind: EventKind, sent_ns: int) -> None:
        self.seq = seq
        self.kind: EventKind = kind
        self.sent_ns = sent_ns
        self.num_resends = 0


class Delivery:
    """One client of one stream.

    state     where the connection stands
    acked     the last event that was acknowledged
    sent      the last event that need not be sent on this connection any more: the log is read from there
    """

    __slots__ = (
        "_buffer_is_empty", "_loss_ns", "_num_losses", "_out", "_progress_ns", "_round_trip", "acked", "sent", "state",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state: DeliveryState = "detached"
        self.acked = 0
        self.sent = 0
        self._out: deque[_Sent] = deque()
        self._num_losses = 0
        self._loss_ns = 0
        self._progress_ns = 0
        self._buffer_is_empty = True
        self._round_trip = RoundTrip()

    @property
    def num_free(self) -> int:
        """How many more events may be numbered before some are acknowledged; 0 while nobody is attached."""
        return 0 if self.state == "detached" else MAX_UNACKNOWLEDGED - len(self._out)

    @property
    def smoothed_round_trip_ns(self) -> int | None:
        """Time from an event to its acknowledgement; None = not known yet."""
        return self._round_trip.smoothed_ns

    def attach(self, after: int, now_ns: int) -> None:
        """A connection is there, whose client has everything up to `after`. Events are numbered anew from there."""
        self._move("attach")
        self._out.clear()
        self._num_losses = 0
        self._loss_ns = self._progress_ns = now_ns
        self._buffer_is_empty = True
        self._round_trip = RoundTrip()  # another path
        self.acked = self.sent = after

    def detach(self) -> None:
        """The connection is gone; what was out may have arrived or not: the client's next cursor tells."""
        self._move("detach")
        self._out.clear()

    def numbered(self, seq: int, kind: EventKind, now_ns: int) -> list[Action]:
        """The log has event `seq`, which follows the last one sent. Raises IllegalInput for any other, or without room."""
        if seq != self.sent + 1 or self.num_free <= 0:
            raise IllegalInput(f"event {seq} after {self.sent}, room for {self.num_free}")
        self.sent = seq
        self._out.append(_Sent(seq, kind, now_ns))
        return [Send(seq)]

    def acknowledged(self, seq: int, now_ns: int) -> list[Action]:
        """The client has everything up to `seq`, an event of the log; an older acknowledgement changes nothing.

        `seq` may be ahead of `sent`: what an earlier connection had brought reached the client after he attached. Events up
        to it need not be sent any more: let the follower `skip_to` it, and do not number those that were read already.
        """
        if self.state == "detached" or seq <= self.acked:
            return []
        self.acked = seq
        last = None
        while self._out and self._out[0].seq <= seq:
            last = self._out.popleft()
        if last is not None and last.seq == seq and last.num_resends == 0:
            self._round_trip = self._round_trip.after(now_ns - last.sent_ns)
        self.sent = max(self.sent, seq)
        self._move("progress")
        self._num_losses = 0
        self._progress_ns = now_ns
        return []

    def buffer(self, *, is_empty: bool, now_ns: int) -> list[Action]:
        """The socket's buffer has bytes, or none any more. Only what has left can be lost, so waits begin when it has."""
        if is_empty and not self._buffer_is_empty:
            self._progress_ns = max(self._progress_ns, now_ns)
        self._buffer_is_empty = is_empty
        return []

    def tick(self, now_ns: int) -> list[Action]:
        """Time has passed."""
        if not self._may_resend():
            return []
        actions: list[Action] = []
        if self._loss_due_ns() <= now_ns:
            self._num_losses += 1
            self._loss_ns = now_ns
            if self._num_losses == MAX_LOSSES:
                self._move("losses")
                return [Leave()]
            self._move("loss")
            actions.append(Stalled())
        for event in self._out:
            if _may_be_resent(event) and self._due_ns(event) <= now_ns:
                event.num_resends += 1
                event.sent_ns = now_ns
                actions.append(Resend(event.seq))
        return actions

    def deadline_ns(self) -> int | None:
        """Return when `tick` has something to do if nothing happens before; None = never."""
        if not self._may_resend():
            return None
        return min(
            [self._loss_due_ns(), *(self._due_ns(event) for event in self._out if _may_be_resent(event))]
        )

    def _may_resend(self) -> bool:
        return bool(self._out) and self._buffer_is_empty and self.state in ("flowing", "stalled")

    def _loss_due_ns(self) -> int:
        """When the oldest event will have waited too long again, whether or not it may be sent again."""
        oldest = self._out[0]
        return max(self._due_ns(oldest), self._loss_ns + self._wait_ns(oldest))

    def _due_ns(self, event: _Sent) -> int:
        return max(event.sent_ns, self._progress_ns) + self._wait_ns(event)

    def _wait_ns(self, event: _Sent) -> int:
        base_ns = max(MIN_WAIT_NS, 2 * (self._round_trip.smoothed_ns or 0))
        return int(base_ns * RESENDING[event.kind].factor ** event.num_resends)

    def _move(self, happened: Input) -> None:
        following = TRANSITIONS[self.state].get(happened)
        if following is None:
            raise IllegalInput(f"{happened} while {self.state}")
        self.state = following


def _may_be_resent(event: _Sent) -> bool:
    return event.num_resends < RESENDING[event.kind].max_resends
