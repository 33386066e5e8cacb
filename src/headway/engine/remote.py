"""An `EngineClient` whose engine is another server: vLLM, or another Headway. Tokens go there, tokens come back.

Each request is one HTTP call, which is closed at once when the request is cancelled. Requests that run when the server is
lost end each for itself, as their connections do; new ones are refused until it is there again (`remote_watch`). It decides
neither what is sent (`remote_body`) nor what an answer means (`remote_answer`, `remote_errors`) nor whose turn it is.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal

import httpx2

from headway.core.clock import NS_PER_S, Clock
from headway.core.errors import (
    ConfigError,
    EngineDied,
    EngineUnavailable,
    HeadwayError,
    UpstreamTimeout,
)
from headway.core.events import EngineState, EngineStepped, Hook
from headway.core.messages import ChoiceFinished, EngineInfo, EngineStats, StepOutputs, TokenDelta
from headway.core.request import Request
from headway.engine.engine_status import EngineStatus, shutting_down
from headway.engine.remote_answer import RemoteAnswer
from headway.engine.remote_body import body_of
from headway.engine.remote_call import RemoteCalls
from headway.engine.remote_config import RemoteConfig, RemoteText
from headway.engine.remote_counts import RemoteCounts
from headway.engine.remote_http import Found, RemoteHttp
from headway.engine.remote_requests import RemoteRequest
from headway.engine.remote_turns import Turns
from headway.engine.remote_watch import RemoteWatch, Sleep
from headway.engine.request_table import RequestStream, RequestTable

TICK_S: Final = 1.0
"""How finely time-outs are kept: they are tens of seconds."""
_HEADWAY_FINGERPRINT: Final = "hw_"
_BLOCK_SIZE: Final = 16
_NO_STATS: Final = EngineStats()


class RemoteEngineClient:
    """An `EngineClient` over HTTP. Belongs to one event loop. `transport`: for tests."""

    def __init__(
        self,
        config: RemoteConfig,
        text: RemoteText,
        clock: Clock,
        turns: Turns,
        hook: Hook | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._config = config
        self._text = text
        self._clock = clock
        self._turns = turns
        self._status = EngineStatus(config.model, hook)
        self._sleep = sleep
        self._http = RemoteHttp(config, transport)
        self._watch = RemoteWatch(
            self._http, config, text, clock, sleep, found=self._on_found, lost=self._on_lost
        )
        self._calls = RemoteCalls(
            http=self._http,
            watch=self._watch,
            turns=turns,
            clock=clock,
            sent=self._sent,
            deliver=self._deliver,
            finish=self._finish,
            end=self._end,
        )
        self._table = RequestTable()
        self._requests: dict[str, RemoteRequest] = {}
        self._counts = RemoteCounts()
        self._found: Found | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> EngineState:
        """Requests are taken only when this is "ready"."""
        return self._status.state

    @property
    def info(self) -> EngineInfo:
        """What the engine is; raises EngineUnavailable until it was ready once.

        Of its KV cache nothing is known but that a whole context fits.
        """
        found = self._found
        if found is None:
            raise EngineUnavailable("The model's engine has not been reached yet; try again in a moment.")
        return EngineInfo(
            model=self._config.model,
            vocab_size=self._text.vocab_size,
            max_context=found.max_context,
            num_blocks=-(-found.max_context // _BLOCK_SIZE),
            block_size=_BLOCK_SIZE,
            system_fingerprint=found.system_fingerprint,
            repeats_exactly=found.system_fingerprint.startswith(_HEADWAY_FINGERPRINT),
        )

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._table)

    def statistics(self) -> EngineStats:
        """What is known here of the engine's load: our own requests."""
        return self._counts.statistics(self._turns.num_places)

    def submit_nowait(self, request: Request) -> RequestStream:
        """See `EngineClient`. Raises Draining, EngineUnavailable, or InvalidRequest for what the server cannot do."""
        found = self._ready()
        body = body_of(request, found.model, is_headway=found.is_headway)
        stream = self._table.add(request)
        run = RemoteRequest(
            request, RemoteAnswer(request, self._text.vocab_size), queued_ns=self._clock.now_ns()
        )
        self._requests[request.request_id] = run
        self._counts.arrived(run)
        run.task = asyncio.create_task(self._calls.carry_out(run, body, is_headway=found.is_headway))
        run.task.add_done_callback(partial(self._task_done, run))
        return stream

    def cancel_nowait(
        self, request_id: str, choice: int | None = None, reason: Literal["cancelled", "stop"] = "cancelled"
    ) -> None:
        """See `EngineClient`. The server learns of it when every choice has ended: the connection is closed."""
        if not self._table.note_cancel(request_id, choice):
            return
        run = self._requests[request_id]
        ends = run.answer.cancel(choice, reason)
        if run.answer.ended:
            self._finish(run, None, ends)
            self._hang_up(run)
        else:
            self._deliver((), ends)

    async def release_session(self, tenant: str, session: str) -> bool:
        """See `EngineClient`. Conversations are the server's own affair: there are none here."""
        del tenant, session
        self._ready()
        return False

    async def wait_ready(self) -> None:
        """See `EngineClient`. A server of which a connection was lost is asked before it counts as ready again."""
        while not self._status.is_any("draining", "closed"):
            await self._watch.sure.wait()
            if self._status.is_any("ready"):
                return
        raise self._status.no_more()

    async def start(self) -> None:
        """Begin to watch the server. One that is not there yet is waited for: until then requests are refused.

        Raises ConfigError where it is there and cannot be used; nothing of the client is left then.
        """
        self._status.begin()
        error = await self._watch.attempt()
        if isinstance(error, ConfigError):
            await self.close()
            raise error
        self._tasks = [
            asyncio.create_task(self._watch.run(), name=f"watch of {self._config.url}"),
            asyncio.create_task(self._keep_time(), name=f"time-outs of {self._config.url}"),
        ]

    async def drain(self, timeout_s: float) -> bool:
        """See `EngineClient`. Idempotent."""
        if self.state not in ("draining", "closed"):
            self._change("draining", "it takes no new requests and finishes what runs")
        return await self._table.wait_empty(timeout_s)

    async def close(self) -> None:
        """See `EngineClient`. Idempotent."""
        if self.state != "closed":
            self._change("closed", "it was stopped")
            error = EngineDied("The server stopped before the request was finished.")
            for run in list(self._requests.values()):
                self._finish(run, error)
        tasks = [*self._tasks, *(run.task for run in self._requests.values() if run.task is not None)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._http.close()

    def _ready(self) -> Found:
        if self.state == "ready" and self._found is not None:
            return self._found
        if self.state in ("starting", "restarting"):
            left_s = (self._watch.retry_at_ns - self._clock.now_ns()) / NS_PER_S
            raise EngineUnavailable(
                "The model's engine is not there now; try again in a moment.", retry_after_s=max(1.0, left_s)
            )
        raise shutting_down()

    def _sent(self, run: RemoteRequest) -> None:
        self._counts.sent(run)
        self._tell_counts()

    def _end(self, run: RemoteRequest, error: HeadwayError) -> None:
        """End a request from this side."""
        self._finish(run, error)
        self._hang_up(run)

    def _hang_up(self, run: RemoteRequest) -> None:
        if run.task is not None and run.task is not asyncio.current_task():
            run.task.cancel()

    def _finish(
        self, run: RemoteRequest, error: HeadwayError | None, ends: Sequence[ChoiceFinished] = ()
    ) -> None:
        """Tell a request's end, once."""
        if run.is_over:
            return
        run.is_over = True
        ends = (*ends, *run.answer.fail())
        self._counts.ended(run)
        finished = run.finished(error, self._clock.now_ns())
        self._table.deliver(StepOutputs(choices=ends, finished=(finished,), stats=_NO_STATS))

    def _deliver(self, deltas: Sequence[TokenDelta], ends: Sequence[ChoiceFinished]) -> None:
        self._table.deliver(StepOutputs(deltas=tuple(deltas), choices=tuple(ends), stats=_NO_STATS))

    def _task_done(self, run: RemoteRequest, _: asyncio.Task[None]) -> None:
        del self._requests[run.request.request_id]
        if not run.is_over:  # it was cancelled before it began
            self._finish(run, EngineDied("The server stopped before the request was finished."))
        self._tell_counts()

    async def _keep_time(self) -> None:
        """End requests of which nothing was heard for too long, and connections that their requests have left."""
        while True:
            await self._sleep(TICK_S)
            now_ns = self._clock.now_ns()
            for run in list(self._requests.values()):
                if run.is_over:
                    if run.has_lingered(now_ns):
                        self._hang_up(run)
                elif run.is_silent(self._config, now_ns):
                    self._watch.suspect()
                    self._end(
                        run, UpstreamTimeout("The model's engine took too long; send the request again.")
                    )

    def _on_found(self, found: Found) -> None:
        self._found = found
        if self.state in ("starting", "restarting"):
            self._change("ready", f"it answers at {self._config.url}")

    def _on_lost(self, reason: str) -> None:
        if self.state in ("ready", "restarting"):
            if self.state == "ready":
                self._counts.lost()
            self._change("restarting", reason)

    def _tell_counts(self) -> None:
        if self._status.is_heard and self.state != "closed":
            self._status.tell(EngineStepped(model=self._config.model, stats=self.statistics()))

    def _change(self, state: EngineState, reason: str) -> None:
        if state in ("draining", "closed"):
            self._watch.sure.set()  # whoever waits is to learn of it
        self._status.change(state, reason)
