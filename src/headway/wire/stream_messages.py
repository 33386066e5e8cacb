"""Messages of `WS /v1/streams/{id}/ws`: one JSON object in one text frame each way (docs/streams.md).

A client's messages are read strictly, since they change what the server keeps; a server's are read with room for fields
that newer servers add.
"""

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.errors import ErrorFields

MAX_CLIENT_MESSAGE_BYTES: Final = 512
"""An acknowledgement has less than 100."""
MAX_SERVER_MESSAGE_BYTES: Final = 8 << 20
"""Twice the largest event that is read over HTTP, whose text JSON may escape."""
_MAX_SHOWN_CHARS: Final = 200

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]


class Position(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All events of `epoch` up to `seq` have arrived. It is the body of `POST /v1/streams/{id}/ack`, too."""

    seq: Number
    epoch: Epoch = 1


class Ack(Position, frozen=True, kw_only=True, tag_field="type", tag="ack", forbid_unknown_fields=True):
    """An acknowledgement in a message of its own."""


class Heartbeat(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="heartbeat",
    forbid_unknown_fields=True,
):
    """The client lives; the server sends `ms` back. `ms`: the client's clock, in milliseconds; `ack`: it rides along."""

    ms: Number
    ack: Position | None = None


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="heartbeat"):
    """A heartbeat answered. `ms`: what it had."""

    ms: Number


class StreamEvent(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="event"
):
    """One numbered event. `data` and `name`: as in the same event over HTTP; `last`: no other follows."""

    epoch: Epoch
    seq: Number
    kind: Literal["content", "control", "error"]
    data: str
    name: str | None = None
    last: bool = False


class StreamError(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The stream cannot go on here; the connection closes. It has no number: it is about the connection, not the answer."""

    error: ErrorFields


FromClient = Ack | Heartbeat
FromServer = StreamEvent | Pong | StreamError

encode: Final = msgspec.json.Encoder().encode
_from_client: Final = msgspec.json.Decoder(FromClient)
_from_server: Final = msgspec.json.Decoder(FromServer)
_position: Final = msgspec.json.Decoder(Position)
T = TypeVar("T")


def read_from_client(frame: bytes | str) -> FromClient:
    """Read what a client sent; raises InvalidRequest."""
    return _read(_from_client, frame, MAX_CLIENT_MESSAGE_BYTES)


def read_from_server(frame: bytes | str) -> FromServer:
    """Read what a server sent; raises InvalidRequest."""
    return _read(_from_server, frame, MAX_SERVER_MESSAGE_BYTES)


def read_ack(body: bytes) -> Position:
    """Read the body of `POST /v1/streams/{id}/ack`; raises InvalidRequest."""
    return _read(_position, body, MAX_CLIENT_MESSAGE_BYTES)


def _read(decoder: msgspec.json.Decoder[T], frame: bytes | str, max_bytes: int) -> T:
    if len(frame) > max_bytes:
        raise InvalidRequest(f"A stream's message has at most {max_bytes} bytes.")
    try:
        return decoder.decode(frame)
    except msgspec.ValidationError as error:
        raise InvalidRequest(
            f"A stream's message is not as it should be: {str(error)[:_MAX_SHOWN_CHARS]}."
        ) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidRequest("A stream's message must be a JSON object.") from None
