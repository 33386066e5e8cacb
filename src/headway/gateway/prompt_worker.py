"""Threads that turn requests into token ids, behind bounded queues, so that streams never wait for a long prompt.

The `tokenizers` library lets go of the interpreter while it works. Whose job is next `prompt_queue` decides; one whose
caller has left before its turn is dropped. Long texts have a thread of their own: 8 MiB take one for seconds, and no prompt
of ordinary length should wait for that. A short text is read where it comes, unless others wait: the way to a thread and
back would take about as long.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from headway.core.caller import NOBODY, Caller
from headway.core.errors import QueueFull
from headway.gateway.prompt_queue import PromptQueue, Ticket

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Job:
    """`running`: None = its turn has not come."""

    work: Callable[[], Any]
    answer: "asyncio.Future[Any]"
    running: "asyncio.Future[Any] | None" = None


LONG_BYTES: Final = 256 * 1024
"""Takes a tenth of a second."""


AT_ONCE_BYTES: Final = 2048
"""Takes less than a millisecond, which streams do not notice."""


class PromptWorker:
    """Runs jobs on its threads, those of up to LONG_BYTES on one. All methods belong to one event loop.

    The bounds are of each thread's jobs; texts up to `at_once_bytes` need none while nothing waits.
    """

    def __init__(
        self, *, max_pending: int, max_pending_bytes: int, at_once_bytes: int = AT_ONCE_BYTES
    ) -> None:
        self._at_once_bytes = at_once_bytes
        self._short = _Lane(max_pending, max_pending_bytes)
        self._long = _Lane(max_pending, max_pending_bytes)

    @property
    def num_pending(self) -> int:
        """Jobs that wait or run."""
        return self._short.num_pending + self._long.num_pending

    def submit_nowait(
        self, job: Callable[[], T], num_bytes: int, caller: Caller = NOBODY
    ) -> "asyncio.Future[T]":
        """Queue a job whose input has `num_bytes`; cancelling the future drops it if its turn has not come.

        A short one is done when this returns, if nothing waits.
        Raises QueueFull beyond either bound, or has it raised by the future of a caller who has more that waits; one job
        alone may have any size.
        """
        if num_bytes <= self._at_once_bytes and self._short.is_idle:
            return _done_at_once(job)
        lane = self._long if num_bytes > LONG_BYTES else self._short
        return lane.submit_nowait(job, num_bytes, caller)

    def close(self) -> None:
        """Drop what waits; the jobs that run end by themselves. Idempotent."""
        self._short.close()
        self._long.close()


class _Lane:
    """One thread and its queue."""

    def __init__(self, max_pending: int, max_pending_bytes: int) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headway-prompts")
        self._queue = PromptQueue(max_prompts=max_pending, max_bytes=max_pending_bytes)
        self._jobs: dict[Ticket, _Job] = {}
        self._is_closed = False

    @property
    def num_pending(self) -> int:
        return len(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs, and more would be taken."""
        return not self._is_closed and not len(self._queue)

    def submit_nowait(self, job: Callable[[], T], num_bytes: int, caller: Caller) -> "asyncio.Future[T]":
        if self._is_closed:
            raise RuntimeError("closed")
        ticket = self._queue.enter((caller.tenant, caller.user), num_bytes)
        while (crowded_out := self._queue.crowded_out()) is not None:
            full = QueueFull("Too many prompts wait to be tokenised; send the request again later.")
            self._queue.leave(crowded_out)
            if crowded_out is ticket:
                raise full
            if not self._jobs[crowded_out].answer.done():  # else it has given up by itself
                self._jobs[crowded_out].answer.set_exception(full)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs[ticket] = _Job(job, answer)
        answer.add_done_callback(lambda _: self._end(ticket))
        self._start()
        return answer

    def close(self) -> None:
        self._is_closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        for job in tuple(self._jobs.values()):
            job.answer.cancel()

    def _start(self) -> None:
        while not self._is_closed and (ticket := self._queue.take()) is not None:
            job = self._jobs[ticket]
            loop = asyncio.get_running_loop()
            job.running = loop.run_in_executor(self._executor, _contained, job.work)
            job.running.add_done_callback(partial(self._deliver, ticket, job.answer))

    def _deliver(self, ticket: Ticket, answer: "asyncio.Future[Any]", ran: "asyncio.Future[Any]") -> None:
        self._end(ticket)
        error = None if ran.cancelled() else ran.exception()
        if answer.done():
            return
        if ran.cancelled():
            answer.cancel()
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(ran.result())

    def _end(self, ticket: Ticket) -> None:
        """Forget a job that is done or given up: what runs goes on, what was handed over and has not begun is dropped."""
        job = self._jobs.pop(ticket, None)
        if job is None:
            return
        self._queue.leave(ticket)
        if job.running is not None:
            job.running.cancel()
        self._start()


def _contained(job: Callable[[], T]) -> T:
    """Run a job. What a library written in Rust raises when it panics is no Exception, and would pass every handler."""
    try:
        return job()
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError("a library failed while it read a prompt") from error


def _done_at_once(job: Callable[[], T]) -> "asyncio.Future[T]":
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        answer.set_result(_contained(job))
    except Exception as error:
        answer.set_exception(error)
    return answer
