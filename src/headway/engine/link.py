"""The seam between an engine client and the ways an engine may run: process, thread, inline."""

from typing import Protocol

from headway.core.messages import ToEngine
from headway.engine.frames import FromWorker


class Receiver(Protocol):
    """Takes what comes from an engine, on the event loop's thread."""

    def message_received(self, message: FromWorker) -> None:
        """Take one message."""
        ...

    def connection_lost(self, reason: str) -> None:
        """Learn, exactly once, that nothing more will come."""
        ...


class Link(Protocol):
    """A connection to one engine."""

    def send(self, message: ToEngine) -> None:
        """Send without blocking. Raises QueueFull or PayloadTooLarge for a Submit that does not fit the buffer."""
        ...

    async def stop(self) -> str:
        """End the engine if it has not ended, within a bound, free all it held; return how it ended, for people."""
        ...


class Launcher(Protocol):
    """Starts engines."""

    async def launch(self, receiver: Receiver) -> Link:
        """Start an engine; `Ready` or `StartFailed`, then everything else, goes to `receiver`. Raises HeadwayError."""
        ...
