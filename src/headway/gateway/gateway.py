"""What the endpoints share: the served models, limits, clock, hook, the tokenising thread, whether we are draining."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headway.core.clock import Clock
from headway.core.events import Event, Hook
from headway.core.hooks import emit
from headway.gateway.body_budget import BodyBudget
from headway.gateway.config import GatewayConfig
from headway.gateway.door import Door
from headway.gateway.prompt_worker import PromptWorker
from headway.gateway.served import ServedModel
from headway.gateway.streams import Streams

MetricsPage = Callable[[], tuple[str, bytes]]
"""Returns the content type and the body of `/metrics`."""


class Gateway:
    """The service behind the routes. It owns the tokenising thread; engines belong to whoever started them.

    hook          receives what `core.events` says of calls and requests; None = nobody listens
    door          asks who calls, and keeps his limits; None = nobody is asked, and nobody has any
    streams       keeps resumable streams; None = there are none
    wall_time_s   Unix seconds, only for the `created` labels
    """

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        *,
        config: GatewayConfig,
        clock: Clock,
        wall_time_s: Callable[[], float],
        hook: Hook | None = None,
        metrics: MetricsPage | None = None,
        streams: Streams | None = None,
        door: Door | None = None,
    ) -> None:
        self.models = dict(models)
        self.config = config
        self.clock = clock
        self.wall_time_s = wall_time_s
        self.hook = hook
        self.metrics = metrics
        self.streams = streams
        self.door = door or Door()
        self.prompt_worker = PromptWorker(
            max_pending=config.max_pending_prompts, max_pending_bytes=config.max_pending_prompt_bytes
        )
        self.bodies = BodyBudget(config.max_received_bytes)
        self._draining = False
        self._num_active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def draining(self) -> bool:
        """Whether new requests are refused because the server is shutting down."""
        return self._draining

    @property
    def num_active(self) -> int:
        """Calls being served."""
        return self._num_active

    def tell(self, event: Event) -> None:
        """Tell whoever listens now; never raises."""
        emit(self.hook, event)

    def drain_nowait(self) -> None:
        """Refuse new requests from now on; running ones finish. Idempotent."""
        self._draining = True

    async def wait_idle(self) -> None:
        """Wait until no call is being served."""
        await self._idle.wait()

    def close(self) -> None:
        """End the tokenising thread. Idempotent."""
        self.prompt_worker.close()

    def readiness(self) -> dict[str, str]:
        """Return each model's state; the service is ready when all of them are "ready"."""
        if self._draining:
            return dict.fromkeys(self.models, "draining")
        return {name: served.engine.state for name, served in self.models.items()}

    def hold_active(self, task: "asyncio.Task[None]") -> None:
        """Count something else as a call being served until `task` is done."""
        held = self.count_active()
        held.__enter__()
        task.add_done_callback(lambda _: held.__exit__(None, None, None))

    @contextmanager
    def count_active(self) -> Iterator[None]:
        """Count a call while it is served."""
        self._num_active += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_active -= 1
            if not self._num_active:
                self._idle.set()
