"""What is kept of a stream: values, the life cycle, and whether a client may go on from where it says it stands.

An event is one message to the client, numbered when it enters the log. Its data is opaque here, and so are `meta` (what a
gateway needs to run the request again) and `progress` (tokens generated so far, one piece for each append).
"""

from typing import Final, Literal, NamedTuple

import msgspec

from headway.core.errors import ResyncRequired
from headway.streams.ids import Cursor, stream_not_found

EventKind = Literal["content", "control", "error"]
"""`content`: a part of the answer; `control`: what gives it its shape (a role, an end, usage); `error`: what ended it."""

StreamState = Literal["open", "ended", "failed", "gone"]
EndState = Literal["ended", "failed"]

TRANSITIONS: Final[dict[StreamState, frozenset[StreamState]]] = {
    "open": frozenset({"ended", "failed", "gone"}),
    "ended": frozenset({"gone"}),
    "failed": frozenset({"gone"}),
    "gone": frozenset(),
}
"""`open`: events may come; `ended`: the last one is there; `failed`: it is an error; `gone`: cancelled or expired, of which
only the name and the owner are remembered for a while."""


class IllegalTransition(RuntimeError):
    """A bug: a stream moved between states that do not follow each other."""


def move(current: StreamState, target: StreamState) -> StreamState:
    """Return `target`; raises IllegalTransition when it cannot follow `current`."""
    if target not in TRANSITIONS[current]:
        raise IllegalTransition(f"a stream that is {current} cannot become {target}")
    return target


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What will be an event. `data`: one line; `name`: its type, where an API uses types.

    A log keeps hundreds of thousands. Python's collector, which would stop everything to walk them, does not know of them:
    they refer to nothing that could refer back.
    """

    kind: EventKind
    data: bytes
    name: str | None = None

    @property
    def num_bytes(self) -> int:
        """What it counts for against a bound of bytes."""
        return len(self.data) + len(self.name or "")


class Event(NamedTuple):
    """A numbered entry."""

    seq: int
    entry: Entry


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as its log knows it at one moment.

    owner       who may read it: the public id of the token that started it
    epoch       which numbering is valid
    created_ms  wall-clock time, a label
    acked       the last event that was acknowledged: it and all before it are dropped; 0 = none
    last_seq    the last event there is; 0 = none yet
    """

    stream_id: str
    owner: str
    created_ms: int
    meta: bytes = b""
    epoch: int = 1
    state: StreamState = "open"
    acked: int = 0
    last_seq: int = 0


class Lease(NamedTuple):
    """The right to append to a stream, which one gateway has at a time. `fence`: grows whenever it changes hands."""

    stream_id: str
    fence: int


class Recovery(NamedTuple):
    """What a stream is taken over with. `progress`: what was appended beside its events, piece by piece."""

    lease: Lease
    record: StreamRecord
    progress: tuple[bytes, ...]


class Page(NamedTuple):
    """Events in a row. `complete`: the stream is over, and the last of its events is here or was read before."""

    events: tuple[Event, ...]
    complete: bool


def attach(record: StreamRecord | None, owner: str, cursor: Cursor) -> int:
    """Return the number after which a client goes on that says it stands at `cursor`.

    Raises StreamNotFound for a stream that is unknown or somebody else's, ResyncRequired where nothing but a gap or a
    splice could follow.
    """
    if record is None or record.owner != owner:
        raise stream_not_found()
    if record.state == "gone" or (cursor.seq and cursor.epoch != record.epoch):
        raise stale_epoch()
    check_position(record.acked, record.last_seq, cursor.seq)
    return cursor.seq


def stale_epoch() -> ResyncRequired:
    """Return the error for streams that are gone, and for numbers of an epoch that is over."""
    return ResyncRequired("The stream has expired, was cancelled or began anew; send the request again.")


def check_position(acked: int, last_seq: int, seq: int) -> None:
    """Raise ResyncRequired unless a log that has `acked` + 1 to `last_seq` has, or will have, all that follows `seq`."""
    if seq < acked:
        raise ResyncRequired(
            f"Events up to {acked} were acknowledged and dropped, and you stand at {seq}; send the request again."
        )
    if seq > last_seq:
        raise ResyncRequired(f"Event {seq} is lost, or never was; send the request again.")
