"""The gateway's end of the stream socket to an engine, on asyncio; the other end is `transport`.

This file knows buffering and the end of a connection; it knows no request and no engine. It never blocks: what the engine
has not read yet waits in asyncio's buffer, and beyond `MAX_UNREAD_BYTES` a request is refused instead of queued.
Cancellations always go: they are small and bounded by the running requests.

A file of its own, because the engine's process starts sooner without asyncio.
"""

import asyncio
import socket
from typing import cast

import msgspec

from headway.core.errors import PayloadTooLarge, QueueFull
from headway.core.messages import Submit
from headway.engine.frames import (
    MAX_FRAME_BYTES,
    BadFrame,
    FrameDecoder,
    FrameEncoder,
    FrameTooLarge,
    FromWorker,
)
from headway.engine.link import Receiver

MAX_UNREAD_BYTES = MAX_FRAME_BYTES + 4
"""What may wait for the engine to read: the largest frame always fits when nothing else waits."""


class GatewayChannel(asyncio.Protocol):
    """The gateway's end, on asyncio. Owns its transport; hands every message to a `Receiver`."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._encoder = FrameEncoder()
        self._decoder: FrameDecoder[FromWorker] = FrameDecoder(FromWorker)
        self._transport: asyncio.Transport | None = None
        self._reason: str | None = None
        self.has_received = False
        """Whether the engine has said anything yet: before that it loads its model and does not listen."""

    @classmethod
    async def open(cls, sock: socket.socket, receiver: Receiver) -> "GatewayChannel":
        """Take over a connected stream socket."""
        _, channel = await asyncio.get_running_loop().create_unix_connection(lambda: cls(receiver), sock=sock)
        return channel

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message without blocking; ignored after the connection's end.

        Raises PayloadTooLarge for a message that no frame holds, QueueFull for a Submit that finds the buffer full.
        """
        if self._transport is None:
            return
        try:
            frame = self._encoder.encode(message)
        except FrameTooLarge as error:
            raise PayloadTooLarge("The prompt has too many tokens; shorten it.") from error
        num_unread_bytes = self._transport.get_write_buffer_size() + len(frame)
        if isinstance(message, Submit) and num_unread_bytes > MAX_UNREAD_BYTES:
            raise QueueFull("The engine cannot keep up with new requests; try again in a moment.")
        self._transport.write(frame)

    def abort(self, reason: str) -> None:
        """End the connection now, dropping what was not written."""
        if self._transport is not None:
            self._reason = self._reason or reason
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio's

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        if self._reason is not None:  # aborted: what still arrives cannot be trusted
            return
        try:
            messages = self._decoder.feed(data)
        except BadFrame as error:
            self.abort(f"it sent something that is not a message ({error})")
            return
        for message in messages:
            self.has_received = True
            self._receiver.message_received(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio, once."""
        torn = "" if self._decoder.is_empty else " in the middle of a message"
        self._transport = None
        self._receiver.connection_lost(
            self._reason or f"its connection ended{torn}" + (f" ({exc})" if exc else "")
        )
