"""The engine client that every transport shares: requests, states, restarts.

A `Launcher` starts one engine and returns a `Link` to it; the client decides what its end means. It knows neither
processes nor sockets nor threads.

When an engine ends unasked, every running request ends with EngineDied, new ones are refused with the time that is left,
and another engine is started after a back-off (`lifecycle.Backoff`) until the client is drained or closed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from headway.core.clock import NS_PER_S, Clock
from headway.core.errors import (
    Draining,
    EngineDied,
    EngineUnavailable,
    HeadwayError,
)
from headway.core.events import EngineState, EngineStepped, Hook
from headway.core.messages import (
    Cancel,
    Drain,
    EngineInfo,
    EngineStats,
    Ready,
    ReleaseSession,
    StepOutputs,
    Submit,
)
from headway.core.request import Request
from headway.engine.engine_status import EngineStatus, shutting_down
from headway.engine.frames import FromWorker
from headway.engine.lifecycle import Backoff
from headway.engine.link import Launcher, Link
from headway.engine.request_table import RequestStream, RequestTable

logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]

LOADING_RETRY_S = 1.0
"""What a refused caller is told while a model loads: about the load time of a small one."""


class _Session:
    """One engine's life as the client sees it: `started` is set once, then perhaps `lost`."""

    def __init__(self, client: "SupervisedEngineClient") -> None:
        self._client = client
        self.started: asyncio.Future[EngineInfo | HeadwayError] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()

    def message_received(self, message: FromWorker) -> None:
        if isinstance(message, StepOutputs):
            self._client._on_outputs(message)
        elif isinstance(message, Ready):
            self._set_started(message.info)
        else:
            self._set_started(message.error.to_error())

    def connection_lost(self, reason: str) -> None:
        self.lost.set()
        self._set_started(EngineDied(f"The engine ended while it started: {reason}; its log may say why."))
        self._client._on_lost(self, reason)

    def _set_started(self, result: EngineInfo | HeadwayError) -> None:
        if not self.started.done():
            self.started.set_result(result)


class SupervisedEngineClient:
    """An `EngineClient` over any launcher. Belongs to one event loop."""

    def __init__(
        self, launcher: Launcher, model: str, clock: Clock, hook: Hook | None, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._launcher = launcher
        self._model = model
        self._clock = clock
        self._status = EngineStatus(model, hook)
        self._sleep = sleep
        self._table = RequestTable()
        self._releases: dict[int, asyncio.Future[bool]] = {}
        self._next_release_id = 0
        self._info: EngineInfo | None = None
        self._stats = EngineStats()
        self._link: Link | None = None
        self._session: _Session | None = None
        self._backoff = Backoff()
        self._ready_at_ns = 0
        self._restart_at_ns = 0
        self._supervisor: asyncio.Task[None] | None = None
        self._ending = asyncio.Lock()

    @property
    def state(self) -> EngineState:
        """Requests are taken only when this is "ready"."""
        return self._status.state

    @property
    def info(self) -> EngineInfo:
        """What the engine is; raises EngineUnavailable until it was ready once."""
        if self._info is None:
            raise EngineUnavailable("The model is still loading; try again in a moment.")
        return self._info

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._table)

    def statistics(self) -> EngineStats:
        """The engine's last report."""
        return self._stats

    def submit_nowait(self, request: Request) -> RequestStream:
        """See `EngineClient`. Raises Draining, EngineUnavailable, QueueFull, or PayloadTooLarge."""
        link = self._ready_link()
        stream = self._table.add(request)
        try:
            link.send(Submit(request))
        except BaseException:  # not sent, whatever it was: no engine will ever end it
            self._table.discard(request.request_id)
            raise
        return stream

    def cancel_nowait(
        self, request_id: str, choice: int | None = None, reason: Literal["cancelled", "stop"] = "cancelled"
    ) -> None:
        """See `EngineClient`. The engine hears of each cancellation once."""
        if self._table.note_cancel(request_id, choice) and self._link is not None:
            self._link.send(Cancel(request_id=request_id, choice=choice, reason=reason))

    async def release_session(self, tenant: str, session: str) -> bool:
        """See `EngineClient`."""
        link = self._ready_link()
        release_id = self._next_release_id
        self._next_release_id += 1
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._releases[release_id] = future
        try:
            link.send(ReleaseSession(release_id=release_id, tenant=tenant, session=session))
            return await future
        finally:
            del self._releases[release_id]

    async def wait_ready(self) -> None:
        """See `EngineClient`. Wakes at changes of state only."""
        while self._is("starting", "restarting"):
            await self._status.changed()
        if not self._is("ready"):
            raise self._status.no_more()

    async def start(self) -> None:
        """See `EngineClient`. On failure the client is closed and nothing of the engine is left."""
        if self._session is not None or self.state != "starting":
            raise RuntimeError("an engine client is started once")
        self._status.begin()
        try:
            await self._launch()
        except BaseException:
            await self.close()
            raise
        self._supervisor = asyncio.create_task(self._supervise(), name=f"engine of {self._model}")

    async def drain(self, timeout_s: float) -> bool:
        """See `EngineClient`. Idempotent; an engine that is not ready is ended at once."""
        state_before = self.state
        if state_before not in ("draining", "closed"):
            self._change("draining", "it takes no new requests and finishes what runs")
            if state_before == "ready" and self._link is not None:
                self._link.send(Drain())
            else:
                await self._end_engine()
        return await self._table.wait_empty(timeout_s)

    async def close(self) -> None:
        """See `EngineClient`. Idempotent; the bound on its time is the link's."""
        if self.state != "closed":
            self._change("closed", "it was stopped")
            self._end_requests(EngineDied("The server stopped before the request was finished."))
        await self._end_engine()

    def _ready_link(self) -> Link:
        if self.state == "ready" and self._link is not None:
            return self._link
        if self.state == "restarting":
            left_s = (self._restart_at_ns - self._clock.now_ns()) / NS_PER_S
            raise EngineUnavailable(
                "The engine is restarting; try again in a moment.",
                retry_after_s=left_s if left_s > 0 else LOADING_RETRY_S,
            )
        if self.state == "starting":
            raise EngineUnavailable(
                "The model is still loading; try again in a moment.", retry_after_s=LOADING_RETRY_S
            )
        raise shutting_down()

    async def _launch(self) -> None:
        session = self._session = _Session(self)
        self._link = await self._launcher.launch(session)
        result = await session.started if self._is("starting", "restarting") else None
        if result is None or self._is("draining", "closed"):
            raise Draining("The server is shutting down.")
        if isinstance(result, HeadwayError):
            raise result
        if session.lost.is_set():
            raise EngineDied("The engine ended as soon as it had started; its log may say why.")
        self._info = result
        self._ready_at_ns = self._clock.now_ns()
        self._change("ready", "it has loaded its model")

    async def _supervise(self) -> None:
        """Restart the engine whenever it is lost, until the client drains or closes."""
        while (
            self._is("ready", "restarting") and self._session is not None
        ):  # it may be lost before this runs
            await self._session.lost.wait()
            how = await self._stop_link()
            if self._is("restarting"):
                logger.error("engine of %s: %s; restart in %g s", self._model, how, self._backoff.delay_s)
            while self._is("restarting"):
                await self._sleep(self._backoff.delay_s)
                await self._relaunch()

    async def _relaunch(self) -> None:
        try:
            await self._launch()
        except Exception as error:  # whatever it was, the answer is to wait and try again
            await self._stop_link()
            if not isinstance(error, HeadwayError):
                logger.exception("engine of %s did not start", self._model)
            if self._is("restarting"):
                self._note_failure(f"it did not start again: {error}", uptime_s=0.0)
                logger.error(
                    "engine of %s did not start again: %s; next attempt in %g s",
                    self._model,
                    error,
                    self._backoff.delay_s,
                )

    async def _end_engine(self) -> None:
        async with self._ending:
            if self._supervisor is not None:
                self._supervisor.cancel()
                await asyncio.wait({self._supervisor})
                self._supervisor = None
            await self._stop_link()

    async def _stop_link(self) -> str:
        """End the engine and free what it held; may be cancelled and called again."""
        link = self._link
        if link is None:
            return "it was not running"
        how = await link.stop()
        if self._link is link:
            self._link = None
        return how

    def _on_outputs(self, outputs: StepOutputs) -> None:
        if self.state == "closed":
            return
        self._stats = outputs.stats
        self._table.deliver(outputs)
        for release_id, found in ((r.release_id, r.found) for r in outputs.released):
            future = self._releases.get(release_id)
            if future is not None and not future.done():
                future.set_result(found)
        if self._status.is_heard:
            self._status.tell(EngineStepped(model=self._model, stats=outputs.stats))

    def _on_lost(self, session: _Session, reason: str) -> None:
        if session is not self._session:
            return
        if self._is("ready"):
            uptime_s = (self._clock.now_ns() - self._ready_at_ns) / NS_PER_S
            self._note_failure(reason, uptime_s)
            self._stats = EngineStats()  # the next engine counts from zero
        if self._is("restarting", "draining"):
            self._end_requests(EngineDied("The engine ended while the request ran; send it again."))

    def _note_failure(self, reason: str, uptime_s: float) -> None:
        self._backoff = self._backoff.after_end(uptime_s)
        self._restart_at_ns = self._clock.now_ns() + round(self._backoff.delay_s * NS_PER_S)
        self._change("restarting", f"{reason}; restart in {self._backoff.delay_s:g} s")

    def _end_requests(self, error: HeadwayError) -> None:
        num_ended = self._table.end_all(error, self._clock.now_ns())
        for future in self._releases.values():
            if not future.done():
                future.set_exception(error)
        if num_ended:
            logger.warning("engine of %s: %d running requests were cut off", self._model, num_ended)

    def _is(self, *states: EngineState) -> bool:
        return self._status.is_any(*states)

    def _change(self, state: EngineState, reason: str) -> None:
        num_blocks = self._info.num_blocks if state == "ready" and self._info is not None else 0
        self._status.change(state, reason, num_blocks)
