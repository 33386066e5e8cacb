"""The two ends of the stream socket between a gateway and an engine in another process or thread.

This file knows buffering and the end of a connection; it knows no request and no engine. Neither end blocks the other:

- The gateway writes through asyncio; what the engine has not read yet waits in its buffer, and beyond `MAX_UNREAD_BYTES` a
  request is refused instead of queued. Cancellations always go: they are small and bounded by the running requests.
- The engine sends without blocking. What the gateway has not read waits in a backlog; beyond `MAX_BACKLOG_BYTES` the
  channel is `congested` and the engine makes no further step until the gateway reads (it goes on taking cancellations
  and notices the gateway's end). Nothing is dropped or merged: every token belongs to somebody.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import suppress
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
    ToWorker,
)
from headway.engine.link import Receiver

MAX_UNREAD_BYTES = MAX_FRAME_BYTES + 4
"""What may wait for the engine to read: the largest frame always fits when nothing else waits."""
MAX_BACKLOG_BYTES = 8 * 1024 * 1024
"""Thousands of step messages (about 2.5 KB with 64 sequences): a gateway this far behind is stopped, not slow."""
MAX_RECEIVE_BYTES = 128 * 1024
"""Bytes taken between two steps, so that a flood of prompts cannot stop the running streams: decoded, checked and hashed
into block keys, this many took 6 ms on two cores of a Zen 4 (4 MiB took 240 to 570 ms)."""
_CHUNK_BYTES = 64 * 1024  # how far one call may exceed that


class EngineChannel:
    """The engine's end: synchronous, and blocking only in `wait` and `finish`. Owns its socket and the pair that wakes."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._wake_pair: tuple[socket.socket, socket.socket] | None = None
        self._poll = select.poll()
        self._encoder = FrameEncoder()
        self._decoder: FrameDecoder[ToWorker] = FrameDecoder(ToWorker)
        self._backlog = bytearray()
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the gateway is gone (or sent garbage); nothing can be exchanged any more."""
        return self._ended

    @property
    def backlog_bytes(self) -> int:
        """Bytes sent that the gateway has not taken yet."""
        return len(self._backlog)

    @property
    def congested(self) -> bool:
        """Whether the gateway is so far behind that no step should be made."""
        return len(self._backlog) > MAX_BACKLOG_BYTES

    def receive(self) -> list[ToWorker]:
        """Return the messages that have arrived, without blocking; sets `ended` at the end of the stream."""
        messages: list[ToWorker] = []
        num_bytes = 0
        while not self._ended and num_bytes < MAX_RECEIVE_BYTES:
            try:
                data = self._sock.recv(_CHUNK_BYTES)
                messages += self._decoder.feed(data)
            except BlockingIOError:
                break
            except (OSError, BadFrame):
                self._ended = True
                break
            num_bytes += len(data)
            self._ended = not data
        return messages

    def send(self, message: msgspec.Struct) -> None:
        """Send a message as far as the socket takes it, the rest later; never blocks."""
        self._backlog += self._encoder.encode(message)
        self._flush()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until a message arrives, the connection ends, the gateway takes more of the backlog, or `wake`."""
        if self._ended:
            return
        self._poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._backlog else 0))
        ready = self._poll.poll(None if timeout_s is None else timeout_s * 1000)
        if any(flags & select.POLLOUT for _, flags in ready):
            self._flush()
        if self._wake_pair is not None:
            with suppress(BlockingIOError):
                self._wake_pair[0].recv(_CHUNK_BYTES)

    def open_waker(self) -> Callable[[], None]:
        """Return what ends the `wait` that is going on, or else the next one, from any thread. To be asked for once."""
        assert self._wake_pair is None
        self._wake_pair = woken, waker = socket.socketpair()
        woken.setblocking(False)
        waker.setblocking(False)
        self._poll.register(woken, select.POLLIN)

        def wake() -> None:
            with suppress(OSError):  # woken often enough already, or closed
                waker.send(b"\0")

        return wake

    def finish(self, timeout_s: float) -> None:
        """Wait at most `timeout_s`, each time the gateway takes something, for the backlog to go; then close."""
        if self._wake_pair is not None:
            self._poll.unregister(self._wake_pair[0])
        self._poll.register(self._sock, select.POLLOUT)
        while self._backlog and not self._ended and self._poll.poll(timeout_s * 1000):
            self._flush()
        self.close()

    def close(self) -> None:
        """Close the socket: the gateway sees the end of the stream."""
        self._ended = True
        self._sock.close()
        for end in self._wake_pair or ():
            end.close()

    def _flush(self) -> None:
        sent = 0
        try:
            with memoryview(self._backlog) as view:
                while sent < len(view) and not self._ended:
                    sent += self._sock.send(view[sent:])
        except BlockingIOError:
            pass
        except OSError:  # the gateway is gone: what it did not read has no reader
            self._ended = True
        del self._backlog[:sent]


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
