"""Names: of a stream, of an event within it, and of the place from which a client goes on.

A stream's id is 128 random bits as 32 hexadecimal digits: who does not know it cannot guess it, and none comes twice.
An event's id is `<stream>.<epoch>.<seq>`. The sequence number grows by one with each event, from 1. The epoch, from 1,
changes when a number may have meant another event before, so that a cursor of the old numbering is refused, not misread.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headway.core.errors import InvalidRequest, StreamNotFound

ID_BYTES: Final = 16
FIRST_EPOCH: Final = 1
MAX_NUMBER: Final = 2**53 - 1
"""Largest epoch and sequence number: what every JSON number holds exactly (RFC 8259, section 6)."""

_STREAM_ID: Final = re.compile(r"[0-9a-f]{32}")
_NUMBER: Final = r"0|[1-9][0-9]{0,15}"
_EVENT_ID: Final = re.compile(rf"([0-9a-f]{{32}})\.({_NUMBER})\.({_NUMBER})", re.ASCII)
_AFTER: Final = re.compile(rf"(?:({_NUMBER})\.)?({_NUMBER})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a stream: after event `seq` of numbering `epoch`; 0 = before the first, of whichever epoch."""

    epoch: int = FIRST_EPOCH
    seq: int = 0


START: Final = Cursor()


def new_stream_id(random_bytes: Callable[[int], bytes]) -> str:
    """Return the id of a new stream. `random_bytes(n)`: n bytes that nobody can predict (`secrets.token_bytes`)."""
    return random_bytes(ID_BYTES).hex()


def check_stream_id(text: str) -> str:
    """Return `text` if a stream could have this id; raises StreamNotFound, as for any id that no stream has."""
    if _STREAM_ID.fullmatch(text) is None:
        raise stream_not_found()
    return text


def stream_not_found() -> StreamNotFound:
    """Return the one error for ids that are malformed, unknown or somebody else's."""
    return StreamNotFound("There is no such stream; send the request again to start a new one.")


def event_id(stream_id: str, cursor: Cursor) -> str:
    """Return the id of the event at `cursor`."""
    return f"{stream_id}.{cursor.epoch}.{cursor.seq}"


def parse_event_id(text: str) -> tuple[str, Cursor]:
    """Take an event's id apart, as `Last-Event-ID` brings it; raises InvalidRequest for anything else."""
    match = _EVENT_ID.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            "Last-Event-ID must be the id of an event of this server.", param="last-event-id"
        )
    return match[1], _cursor(match[2], match[3], "last-event-id")


def parse_after(text: str) -> Cursor:
    """Read the query parameter `after`: `seq`, which means the first epoch, or `epoch.seq`; raises InvalidRequest."""
    match = _AFTER.fullmatch(text)
    if match is None:
        raise InvalidRequest("after must be a sequence number, or epoch.number.", param="after")
    return _cursor(match[1] or str(FIRST_EPOCH), match[2], "after")


def _cursor(epoch: str, seq: str, param: str) -> Cursor:
    cursor = Cursor(int(epoch), int(seq))
    if cursor.epoch < FIRST_EPOCH or max(cursor.epoch, cursor.seq) > MAX_NUMBER:
        raise InvalidRequest(f"{param} has a number out of range.", param=param)
    return cursor
