"""uvicorn's WebSocket protocol, whose application can ask whether what it sent has arrived.

`scope["extensions"]["headway.unsent_bytes"]` is a function: bytes that wait in this process, or that the peer's kernel has
not acknowledged (tcp(7): SIOCOUTQ). Whoever resends needs it: while some are on their way, more would only make it longer.
"""

import fcntl
import struct
import termios
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    def handle_connect(self, event: Request) -> None:
        """Begin to serve it; the application runs after this."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[Any, Any] = self.scope["extensions"]
            extensions["headway.unsent_bytes"] = self._num_unsent

    def _num_unsent(self) -> int:
        """Return how many bytes are not known to have arrived; 0 once the connection is gone."""
        waiting = self.transport.get_write_buffer_size()
        file = self.transport.get_extra_info("socket")
        if file is None or file.fileno() < 0:
            return waiting
        return waiting + int(struct.unpack("i", fcntl.ioctl(file.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0])
