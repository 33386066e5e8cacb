"""uvicorn's WebSocket protocol, whose application can ask whether what it sent has arrived.

`scope["extensions"]["headway.unsent_bytes"]` is a function: bytes that wait in this process, or that the peer's kernel has
not acknowledged (tcp(7): SIOCOUTQ). Whoever resends needs it: while some are on their way, more would only make it longer.
"""

import asyncio
import fcntl
import struct
import termios
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

_INVALID_TEXT: Final = 1007
"""RFC 6455, 7.4.1."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    def handle_connect(self, event: Request) -> None:
        """Begin to serve it; the application runs after this."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[Any, Any] = self.scope["extensions"]
            extensions["headway.unsent_bytes"] = self._num_unsent

    async def send(self, message: Any) -> None:
        """Send for the application. A refusal is an answer: uvicorn would log it as a handshake that was forgotten."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

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

    def send_receive_event_to_app(self) -> None:
        """Hand a whole message on. A text that is no UTF-8 ends the connection (RFC 6455, 8.1), and is no error of ours."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(_INVALID_TEXT)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def _num_unsent(self) -> int:
        """Return how many bytes are not known to have arrived; 0 once the connection is gone."""
        waiting = self.transport.get_write_buffer_size()
        file = self.transport.get_extra_info("socket")
        if file is None or file.fileno() < 0:
            return waiting
        return waiting + int(struct.unpack("i", fcntl.ioctl(file.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0])
