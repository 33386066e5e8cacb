"""Sends commands to Redis in batches: what is asked while one is on its way goes with the next. It knows no script.

One connection, in order: what is sent later is carried out later, also where the answer to an earlier one was given up. It
costs the event loop a fraction of what a connection for each command does.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from headway.flow.shared import StoreGone

MAX_BATCH: Final = 256
"""Commands: some milliseconds of Redis's time, as nobody else is served meanwhile."""

STALL_S: Final = 0.005
"""A loop that notices a timer so late has stood still; one that is busy is a millisecond late."""

_Asked = tuple[tuple[str, ...], "asyncio.Future[Any]"]


def connect(url: str) -> "Redis":
    """Return a client that never retries by itself: whoever asks has a deadline. It connects when first asked."""
    return Redis.from_url(url, decode_responses=True, retry=Retry(NoBackoff(), 0))


def grace_s(late_s: float, deadline_s: float) -> float:
    """Return how long to go on waiting when a deadline is noticed so late: the loop stood still, and not Redis's answer.

    What came meanwhile is in the socket, and its readers come after the timers.
    """
    return min(late_s, deadline_s) if late_s > STALL_S else 0.0


class RedisPipe:
    """Owns what waits to be sent. `script` is loaded when Redis does not know it: its source."""

    def __init__(self, client: "Redis", script: str, deadline_s: float) -> None:
        self._client = client
        self._script = script
        self._deadline_s = deadline_s
        self._waiting: deque[_Asked] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def ask(self, *command: str) -> Any:
        """Return Redis's answer; raises StoreGone when there is none by the deadline, or an error.

        Cancelled, it may still be carried out, before anything that is asked later.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        due_s = loop.time() + self._deadline_s
        timer = loop.call_at(due_s, self._late, answer, due_s)
        self._waiting.append((command, answer))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        try:
            return await answer
        finally:
            timer.cancel()

    async def aclose(self) -> None:
        """Wait until everything is sent and answered or given up, and close the connection."""
        while self._sending is not None:
            await asyncio.wait({self._sending})
        await self._client.aclose()

    def _late(self, answer: "asyncio.Future[Any]", due_s: float) -> None:
        loop = asyncio.get_running_loop()
        if grace := grace_s(loop.time() - due_s, self._deadline_s):
            loop.call_later(grace, self._give_up, answer)
        else:
            self._give_up(answer)

    def _give_up(self, answer: "asyncio.Future[Any]") -> None:
        if not answer.done():
            answer.set_exception(StoreGone(f"Redis has not answered within {self._deadline_s * 1000:.0f} ms"))

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                # Nobody waits for the others any more, and nothing of them has been carried out.
                batch = [asked for asked in batch if not asked[1].done()]
                if batch:
                    await self._send(batch)
        finally:
            self._sending = None

    async def _send(self, batch: Sequence[_Asked]) -> None:
        flight = asyncio.create_task(self._flight(batch))
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._deadline_s
        done, _ = await asyncio.wait({flight}, timeout=self._deadline_s)
        if not done and (grace := grace_s(loop.time() - due_s, self._deadline_s)):
            done, _ = await asyncio.wait({flight}, timeout=grace)
        if not done:
            flight.cancel()  # which closes the connection
            await asyncio.wait({flight})
            return  # each has given up by itself, or is about to
        if (error := flight.exception()) is not None:
            for _, answer in batch:
                _fail(answer, error)

    async def _flight(self, batch: Sequence[_Asked]) -> None:
        replies = await self._execute(batch)
        unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            await self._client.script_load(self._script)
            again = await self._execute([batch[i] for i in unknown])
            for i, reply in zip(unknown, again, strict=True):
                replies[i] = reply
        for (_, answer), reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception):
                _fail(answer, reply)
            elif not answer.done():
                answer.set_result(reply)

    async def _execute(self, batch: Sequence[_Asked]) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipe:
            for command, _ in batch:
                pipe.execute_command(*command)
            replies: list[Any] = await pipe.execute(raise_on_error=False)
            return replies


def _fail(answer: "asyncio.Future[Any]", error: BaseException) -> None:
    if answer.done():
        return
    gone: BaseException = error
    if isinstance(error, Exception):  # of the client, of sockets, or what garbage makes of a parser
        what = "" if isinstance(error, RedisError | OSError) else f"{type(error).__name__}: "
        gone = StoreGone(f"Redis: {what}{error}")
        gone.__cause__ = error
    answer.set_exception(gone)
