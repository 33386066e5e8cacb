"""The engine's end of the stream socket between a gateway and an engine in another process or thread.

This file knows buffering and the end of a connection; it knows no request and no engine. Neither end blocks the other: the
engine sends without blocking. What the gateway has not read waits in a backlog; beyond `MAX_BACKLOG_BYTES` the channel is
`congested` and the engine makes no further step until the gateway reads (it goes on taking cancellations and notices the
gateway's end). Nothing is dropped or merged: every token belongs to somebody. The other end is `gateway_channel`.
"""

import select
import socket
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headway.engine.frames import BadFrame, FrameDecoder, FrameEncoder, ToWorker

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
