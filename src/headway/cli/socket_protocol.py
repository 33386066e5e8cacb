"""uvicorn's WebSocket protocol, whose application can ask whether what it sent has arrived.

`scope["extensions"]["headway.unsent_bytes"]` is a function: bytes that wait in this process, or that the peer's kernel has
not acknowledged (tcp(7): SIOCOUTQ). Whoever resends needs it: while some are on their way, more would only make it longer.
"""

import asyncio
import fcntl
import struct
import termios
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    def handle_connect(self, event: Request) -> None:
        """Begin to serve it; the application runs after this."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[Any, Any] = self.scope["extensions"]
            extensions["headway.unsent_bytes"] = self._num_unsent

    def pause_writing(self) -> None:
        """Read nothing of a peer that takes nothing: answers to its pings would wait here, without bound."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """See `pause_writing`."""
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()

    def handle_cont(self, event: Frame) -> None:
        """Keep no empty fragment: of them a message may have any number, whatever its limit."""
        if event.data or event.fin:
            super().handle_cont(event)

    def keepalive_timeout(self) -> None:
        """Drop a peer that answers no pings: what it does not take would keep the connection, and its stream, for ever."""
        super().keepalive_timeout()
        self.transport.abort()

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        """Give the peer a while to take what is left, then drop it."""
        super().on_task_complete(task)
        if not self.disconnected:
            self.loop.call_later(self.close_timeout, self.transport.abort)

    def _num_unsent(self) -> int:
        """Return how many bytes are not known to have arrived; 0 once the connection is gone."""
        waiting = self.transport.get_write_buffer_size()
        file = self.transport.get_extra_info("socket")
        if file is None or file.fileno() < 0:
            return waiting
        return waiting + int(struct.unpack("i", fcntl.ioctl(file.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0])
