"""The seam to an HTTP library: open a request, look at its head, read its body as it comes. Nothing else is asked of one.

Implementations set no time-outs and retry nothing: the client decides on both. Cancelling whoever waits here, or leaving the
block, closes the connection unless the body was read to its end.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class HttpFailure(Exception):
    """The connection could not be made or broke; the message is a sentence."""


class Reply(Protocol):
    """A response whose head has come."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By name in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Read the body as it comes, once; raises HttpFailure."""
        ...


class Http(Protocol):
    """Something that speaks HTTP."""

    def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a request; entering waits for the response's head and raises HttpFailure."""
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...
