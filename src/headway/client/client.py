"""The client: endpoints, rules, and what was seen of them; every call is a `Stream`, whole answers are collected ones."""

import asyncio
import random
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Final

from headway.client.answer import Answer
from headway.client.ask import Ask, ask_chat, ask_completion
from headway.client.call import Budget, Call
from headway.client.fill_in import CodeContext, ask_fill_in
from headway.client.hedge import Hedges
from headway.client.http import Http
from headway.client.policy import CannedAnswer, Deadlines, Endpoint, Hedging, Throttling, to_ns
from headway.client.race import Race
from headway.client.stream import Stream
from headway.client.throttle import Throttle
from headway.core.clock import Clock, MonotonicClock
from headway.core.errors import ConfigError

_GOODBYE_S: Final = 1.0
"""How long closing waits for what nobody waits for: cancellations of streams, last bytes of responses."""


class Client:
    """Asks endpoints, the first of them unless it fails; every call ends in time, with an answer or one `CallError`.

    endpoints    the fallback chain, in order: another server, a smaller model
    deadlines    of every call that brings none of its own
    max_retries  requests that one call may make beyond the first of each endpoint, resumes that bring nothing included
    hedging      ask a second endpoint when the first token is late; None = never
    throttling   hold back from an endpoint that refuses; None = never
    last_resort  what a call returns when nobody answered; None = it raises
    http, clock, draws  seams for tests and unusual transports

    It belongs to one event loop, the one it is first used on. Use it as a context, or call `aclose`.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        deadlines: Deadlines | None = None,
        max_retries: int = 5,
        hedging: Hedging | None = None,
        throttling: Throttling | None = Throttling(),  # noqa: B008 - a frozen value
        last_resort: CannedAnswer | None = None,
        http: Http | None = None,
        clock: Clock | None = None,
        draws: random.Random | None = None,
    ) -> None:
        if not endpoints:
            raise ConfigError("A client needs an endpoint.")
        if max_retries < 0:
            raise ConfigError("`max_retries` is at least 0.")
        self._endpoints = tuple(endpoints)
        self._deadlines = deadlines or Deadlines()
        self._max_retries = max_retries
        self._last_resort = last_resort
        self._http = http
        self._clock = clock or MonotonicClock()
        self._draws = draws or random.Random()
        self._hedges = None if hedging is None else Hedges(hedging, len(self._endpoints))
        throttled = () if throttling is None else self._endpoints
        self._throttles = tuple(Throttle(throttling) for _ in throttled if throttling is not None)
        self._no_suffix: set[int] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    async def chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        deadlines: Deadlines | None = None,
        **fields: object,
    ) -> Answer:
        """Return the whole answer to a chat; raises CallError. `fields`: of the request's JSON, such as `max_tokens`."""
        return await self._collect(self._stream(ask_chat(messages, fields), deadlines))

    async def complete(
        self, prompt: str, *, suffix: str = "", deadlines: Deadlines | None = None, **fields: object
    ) -> Answer:
        """Return the whole completion of a text; raises CallError. `suffix`: what follows, where the model fills in."""
        return await self._collect(self._stream(ask_completion(prompt, suffix, fields), deadlines))

    async def fill_in(
        self, context: CodeContext, *, deadlines: Deadlines | None = None, **fields: object
    ) -> Answer:
        """Return what belongs at the cursor, by a chat where a model cannot fill in the middle; raises CallError."""
        return await self._collect(self._stream(ask_fill_in(context, fields), deadlines))

    def stream(
        self,
        messages: Sequence[Mapping[str, object]] | None = None,
        *,
        prompt: str | None = None,
        suffix: str = "",
        deadlines: Deadlines | None = None,
        **fields: object,
    ) -> Stream:
        """Return the answer to a chat, or the completion of `prompt`, as it comes; the call begins when it is iterated."""
        if (messages is None) == (prompt is None):
            raise ConfigError("A stream takes messages or a prompt.")
        if messages is not None:
            return self._stream(ask_chat(messages, fields), deadlines)
        assert prompt is not None
        return self._stream(ask_completion(prompt, suffix, fields), deadlines)

    async def aclose(self) -> None:
        """Close every connection. Streams that still run must be closed before."""
        self._closed = True
        if self._background:
            await asyncio.wait(self._background, timeout=_GOODBYE_S)
            for task in self._background:
                task.cancel()
            if self._background:
                await asyncio.wait(self._background)
        if self._http is not None:
            await self._http.aclose()

    async def __aenter__(self) -> "Client":
        self._open_http()  # here, where no call's time runs
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _collect(self, stream: Stream) -> Answer:
        async with stream:
            return await stream.collect()

    def _stream(self, ask: Ask, deadlines: Deadlines | None) -> Stream:
        times = deadlines or self._deadlines

        def start() -> tuple[Call, Race]:
            call = self._call(ask, times)
            return call, Race(call, self._throttles, self._hedges, self._draws)

        return Stream(start, self._last_resort)

    def _call(self, ask: Ask, times: Deadlines) -> Call:
        if self._closed:
            raise RuntimeError("The client is closed.")
        now_ns = self._clock.now_ns()
        return Call(
            ask=ask,
            endpoints=self._endpoints,
            http=self._open_http(),
            clock=self._clock,
            start_ns=now_ns,
            first_token_ns=now_ns + to_ns(min(times.first_token_s, times.total_s)),
            end_ns=now_ns + to_ns(times.total_s),
            idle_ns=to_ns(times.idle_s),
            budget=Budget(self._max_retries),
            jitter=self._draws.random(),
            background=self._run_in_background,
            no_suffix=self._no_suffix,
        )

    def _open_http(self) -> Http:
        if self._http is None:
            from headway.client.httpx_http import HttpxHttp  # slow to import, and another `http` may stand in

            self._http = HttpxHttp(tls=any(each.url.startswith("https:") for each in self._endpoints))
        return self._http

    def _run_in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(_driven(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _driven(work: Coroutine[object, object, None]) -> None:
    await work
