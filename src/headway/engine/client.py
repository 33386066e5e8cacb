"""How the rest of Headway reaches an engine, wherever it runs: the seam between gateway and engine.

Implementations: `engine.process` (own process, the default), `engine.thread` (same process), `engine.inline` (for tests).
It exchanges only the frozen messages of `headway.core.messages`.
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol

from headway.core.events import EngineState
from headway.core.messages import ChoiceFinished, EngineInfo, EngineStats, Finished, TokenDelta
from headway.core.request import Request

RequestEvent = TokenDelta | ChoiceFinished | Finished


class EngineClient(Protocol):
    """One engine. All methods belong to one event loop; `_nowait` methods never block and never await."""

    @property
    def state(self) -> EngineState:
        """Requests are taken only when this is "ready"."""
        ...

    @property
    def info(self) -> EngineInfo:
        """What the engine is; raises EngineUnavailable until it was ready once."""
        ...

    def statistics(self) -> EngineStats:
        """The engine's last report."""
        ...

    def submit_nowait(self, request: Request) -> AsyncIterator[tuple[RequestEvent, ...]]:
        """Hand over a request; return an iterator of what each step did for it, ending with its one `Finished`.

        A refusal (queue full, cannot fit) arrives as a `Finished` with an error. Leaving the iterator early does not
        cancel: call `cancel_nowait`. Raises Draining, EngineUnavailable or QueueFull when it is known at once.
        """
        ...

    def cancel_nowait(
        self, request_id: str, choice: int | None = None, reason: Literal["cancelled", "stop"] = "cancelled"
    ) -> None:
        """End a request or one of its choices within one step. Idempotent; unknown and ended ids are ignored."""
        ...

    async def release_session(self, tenant: str, session: str) -> bool:
        """End a conversation, giving back what only it keeps in the KV cache; return whether there was one.

        Raises Draining, EngineUnavailable or EngineDied.
        """
        ...

    async def wait_ready(self) -> None:
        """Wait until requests are taken: at once when they are, after a restart when the engine has ended.

        Raises Draining or EngineUnavailable once they never will be again. Bounding the wait is the caller's.
        """
        ...

    async def start(self) -> None:
        """Start the engine and wait until it is ready. Raises the engine's own error (ModelFileError, ConfigError)."""
        ...

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new requests, wait for running ones at most `timeout_s`; return whether all of them finished."""
        ...

    async def close(self) -> None:
        """End the engine now; running requests end with EngineDied. Idempotent."""
        ...
