"""The state an engine is in, as its client keeps it: what may follow, who is told, who waits. It knows no requests."""

import asyncio

from headway.core.errors import Draining, EngineUnavailable, HeadwayError
from headway.core.events import EngineState, EngineStateChanged, Event, Hook
from headway.core.hooks import emit
from headway.engine.lifecycle import move


class EngineStatus:
    """One engine's state, "starting" at first. `hook` hears of every change. Belongs to one event loop."""

    def __init__(self, model: str, hook: Hook | None) -> None:
        self._model = model
        self._hook = hook
        self._state: EngineState = "starting"
        self._changed = asyncio.Event()

    @property
    def state(self) -> EngineState:
        """The state now."""
        return self._state

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to what is told."""
        return self._hook is not None

    def is_any(self, *states: EngineState) -> bool:
        """Whether it is one of these now: asked anew after every wait, which a comparison may be taken not to be."""
        return self._state in states

    def begin(self) -> None:
        """Tell that the engine is being started."""
        self.tell(EngineStateChanged(model=self._model, state=self._state))

    def change(self, state: EngineState, reason: str, num_blocks: int = 0) -> None:
        """Go on to `state`; raises IllegalTransition. `num_blocks`: of the KV cache of an engine that became ready."""
        self._state = move(self._state, state)
        self._changed.set()
        self._changed = asyncio.Event()  # for the next change
        self.tell(EngineStateChanged(model=self._model, state=state, reason=reason, num_blocks=num_blocks))

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def tell(self, event: Event) -> None:
        """Pass an event on."""
        emit(self._hook, event)

    def no_more(self) -> HeadwayError:
        """Return what those hear who wait for an engine that drains or is closed."""
        if self._state == "closed":
            return EngineUnavailable("The engine has stopped; the server's log says why.", retry_after_s=None)
        return shutting_down()


def shutting_down() -> Draining:
    """Return what new requests hear once the server is being stopped."""
    return Draining("The server is shutting down; send the request to another one.")
