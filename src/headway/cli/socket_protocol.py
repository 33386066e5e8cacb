"""uvicorn's WebSocket protocol, whose application can ask whether what it sent has arrived.

`scope["extensions"]["headway.unsent_bytes"]` is a function: bytes that wait in this process, or that the peer's kernel has
not acknowledged (tcp(7): SIOCOUTQ). Whoever resends needs it: while some are on their way, more would only make it longer.
"""

import fcntl
import struct
import termios
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
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

    def send_receive_event_to_app(self) -> None:
        """Hand a whole message on. A text that is no UTF-8 ends the connection (RFC 6455, 8.1), and is nobody's error here."""
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
