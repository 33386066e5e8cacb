"""The seam between a remote engine's client and whoever decides how many of its requests run at once, and which.

`flow.remote_turns` decides by class shares, tenants and a limit that follows the engine's latency.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headway.core.errors import HeadwayError
from headway.core.request import Request


class Turn(Protocol):
    """A request's place at the engine."""

    def generated(self, num_tokens: int) -> None:
        """Learn of tokens; raises Displaced where they come too late to count."""
        ...


class Turns(Protocol):
    """Owns the places at one engine."""

    @property
    def num_places(self) -> int:
        """How many there are at present."""
        ...

    def place(
        self, request: Request, end: Callable[[HeadwayError], None]
    ) -> AbstractAsyncContextManager[Turn]:
        """Wait for a place and hold it; `end` is called if it is taken away. Raises QueueFull."""
        ...

    def refused(self) -> None:
        """Learn that the engine took no request for its own sake, or could not be reached."""
        ...
