"""Whether a generation goes on after its engine's end, and the wait for the next engine.

It does if the engine repeats exactly, so that nobody sees a seam, and if the next one is the same (`system_fingerprint`). A
request may itself be what ends engines, and each of them cuts off everybody: one that gets no token between several ends is
given up. One that never had any is suspected first, so that those which began go on without it; nothing of it is lost.
"""

import asyncio
from typing import Final

from headway.core.errors import EngineDied, EngineUnavailable, HeadwayError
from headway.engine.client import EngineClient

READY_WITHIN_S: Final = 30.0
"""The longest back-off before a restart; a client that has waited so long is told."""
MAX_DEATHS_BEGUN: Final = 3
MAX_DEATHS_NEW: Final = 2
"""Without a token in between, of one that has had some and of one that has had none."""


class Survival:
    """Of one generation. Belongs to its event loop; make it once the engine is ready.

    begun   whether it has had tokens
    """

    def __init__(self, engine: EngineClient, *, begun: bool) -> None:
        self._engine = engine
        self._begun = begun
        self._info = engine.info
        self._num_deaths = 0
        self._waiting: asyncio.Future[None] | None = None

    def note_tokens(self) -> None:
        """It got on."""
        self._begun = True
        self._num_deaths = 0

    def survives(self, error: HeadwayError) -> bool:
        """Return whether to wait for another engine after `error`; counts as an engine's end."""
        if not isinstance(error, EngineDied | EngineUnavailable) or not self._info.repeats_exactly:
            return False
        self._num_deaths += 1
        return self._num_deaths < (MAX_DEATHS_BEGUN if self._begun else MAX_DEATHS_NEW)

    async def wait_for_engine(self, died: HeadwayError) -> None:
        """Return when the next engine is ready, or after `cancel`. Raises `died` if none comes, EngineDied if it differs."""
        waiting = self._waiting = asyncio.ensure_future(self._engine.wait_ready())
        try:
            await asyncio.wait((waiting,), timeout=READY_WITHIN_S)
            if waiting.cancelled():
                return
            if not waiting.done():
                raise died
            refusal = waiting.exception()
        finally:
            self._waiting = None
            waiting.cancel()
        if refusal is not None:
            raise died from refusal
        info = self._engine.info
        if not info.repeats_exactly or info.system_fingerprint != self._info.system_fingerprint:
            raise EngineDied("The engine that ended was replaced by a different one; send the request again.")

    def cancel(self) -> None:
        """End the wait, if there is one."""
        if self._waiting is not None:
            self._waiting.cancel()
