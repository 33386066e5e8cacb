"""Keeps the head of a response back until its first bytes follow: both leave in one write, and wake the reader once.

uvicorn writes a head as soon as it knows it. The body's first bytes follow in the same turn of the event loop nearly
always; where they do not, the head goes at that turn's end.
"""

import asyncio


class HeldHead:
    """Stands before a transport for one response, as far as uvicorn's part for one response uses it."""

    __slots__ = ("_has_begun", "_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._has_begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        """Hold what comes first, pass on the rest."""
        if not self._has_begun:
            self._has_begun = True
            self._head = data
            self._loop.call_soon(self._flush)
            return
        head, self._head = self._head, b""
        self._transport.write(head + data if head else data)

    def close(self) -> None:
        """Pass on what is held, then close."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the transport is."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)
