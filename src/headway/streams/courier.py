"""Brings calls of one script to Redis: all that wait go in one round trip, on one connection, in order.

So the streams of an engine's step, which ask within one turn of the event loop, share a message instead of each taking a
connection. A call goes on when nobody waits for its answer any more. It knows no streams. Needs the extra `gateway`.
"""

import asyncio
from typing import Any, Final

MAX_CALLS: Final = 256
"""In one round trip: more would hold up the server's other clients for more than a few milliseconds."""


class Courier:
    """`client`: a `redis.asyncio.Redis` that does not retry."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._waiting: list[tuple[str, tuple[object, ...], asyncio.Future[Any]]] = []
        self._running: asyncio.Task[None] | None = None

    def evalsha(self, sha: str, call: tuple[object, ...]) -> "asyncio.Future[Any]":
        """Return the answer to a call; raises what Redis answered, or why it did not."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((sha, call, answer))
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        return answer

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting[:MAX_CALLS], self._waiting[MAX_CALLS:]
            try:
                pipeline = self._client.pipeline(transaction=False)
                for sha, call, _ in calls:
                    pipeline.evalsha(sha, *call)
                results = await pipeline.execute(raise_on_error=False)
            except Exception as error:
                results = [error] * len(calls)
            for (_, _, answer), result in zip(calls, results, strict=True):
                if answer.done():
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
        self._running = None
