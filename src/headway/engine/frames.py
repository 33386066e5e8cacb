"""Messages as frames on a byte stream, and the two messages that only the start of an engine process needs. No I/O.

A frame is its payload's length (4 bytes, big-endian) and the payload, one message in msgpack (the `tag` of its struct
names the type). A frame that is too long or does not decode ends the connection: after it nothing on the stream can be
trusted.
"""

import struct
from typing import Any, Generic, TypeVar

import msgspec

from headway.core.config import EngineConfig
from headway.core.messages import ErrorInfo, FromEngine, ToEngine

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A token id takes at most 5 bytes: 13 million tokens, more than an 8 MiB prompt can hold."""
_LENGTH = struct.Struct(">I")

T = TypeVar("T")


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine process logs: `setup` ("module:function") is called with (level, json)."""

    setup: str
    level: str = "INFO"
    json: bool = False


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """The first message to an engine process. `factory`: "module:function", called with (config, clock)."""

    config: EngineConfig
    factory: str
    log: LogSettings | None = None


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """The engine could not be built; sent instead of `Ready`, then the connection ends."""

    error: ErrorInfo


ToWorker = Start | ToEngine
FromWorker = FromEngine | StartFailed


class BadFrame(Exception):
    """The peer sent something that is not one of our messages."""


class FrameTooLarge(ValueError):
    """A message to be sent exceeds `MAX_FRAME_BYTES`."""


class FrameEncoder:
    """Turns messages into frames."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, message: msgspec.Struct) -> bytearray:
        """Return the frame of `message`; raises FrameTooLarge."""
        frame = bytearray(_LENGTH.size)
        self._encoder.encode_into(message, frame, _LENGTH.size)
        num_bytes = len(frame) - _LENGTH.size
        if num_bytes > MAX_FRAME_BYTES:
            raise FrameTooLarge(f"a message of {num_bytes} bytes exceeds {MAX_FRAME_BYTES}")
        _LENGTH.pack_into(frame, 0, num_bytes)
        return frame


class FrameDecoder(Generic[T]):
    """Turns a stream's bytes, cut anywhere, into messages of type `T`. No I/O."""

    def __init__(self, message_type: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(message_type)
        self._pending = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether the bytes so far end at the end of a frame."""
        return not self._pending

    def feed(self, data: bytes | bytearray | memoryview) -> list[T]:
        """Take the next bytes and return the messages they complete; raises BadFrame."""
        self._pending += data
        messages: list[T] = []
        start, available = 0, len(self._pending)
        while available - start >= _LENGTH.size:
            (num_bytes,) = _LENGTH.unpack_from(self._pending, start)
            if num_bytes > MAX_FRAME_BYTES:
                raise BadFrame(f"a frame of {num_bytes} bytes exceeds {MAX_FRAME_BYTES}")
            end = start + _LENGTH.size + num_bytes
            if end > available:
                break
            try:
                messages.append(self._decoder.decode(bytes(self._pending[start + _LENGTH.size : end])))
            except msgspec.MsgspecError as error:
                raise BadFrame(str(error)) from error
            start = end
        del self._pending[:start]
        return messages
