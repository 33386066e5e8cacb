"""One thread that turns requests into token ids, behind a bounded queue, so that streams never wait for a long prompt.

The `tokenizers` library lets go of the interpreter while it works. Jobs run in order of arrival; one whose caller has
left before its turn is dropped.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headway.core.errors import QueueFull

T = TypeVar("T")


class PromptWorker:
    """Runs jobs on its thread. All methods belong to one event loop."""

    def __init__(self, *, max_pending: int, max_pending_bytes: int) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headway-prompts")
        self._max_pending = max_pending
        self._max_pending_bytes = max_pending_bytes
        self._num_pending = 0
        self._pending_bytes = 0

    @property
    def num_pending(self) -> int:
        """Jobs that wait or run."""
        return self._num_pending

    def submit_nowait(self, job: Callable[[], T], num_bytes: int) -> "asyncio.Future[T]":
        """Queue a job whose input has `num_bytes`; cancelling the future drops it if its turn has not come.

        Raises QueueFull beyond either bound; one job alone may have any size.
        """
        if self._num_pending >= self._max_pending or (
            self._num_pending and self._pending_bytes + num_bytes > self._max_pending_bytes
        ):
            raise QueueFull(
                "Too many prompts wait to be tokenised; send the request again later.", param=None
            )
        self._num_pending += 1
        self._pending_bytes += num_bytes
        future = asyncio.get_running_loop().run_in_executor(self._executor, _contained, job)
        future.add_done_callback(lambda _: self._release(num_bytes))
        return future

    def close(self) -> None:
        """Drop what waits; the job that runs ends by itself. Idempotent."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _release(self, num_bytes: int) -> None:
        self._num_pending -= 1
        self._pending_bytes -= num_bytes


def _contained(job: Callable[[], T]) -> T:
    """Run a job. What a library written in Rust raises when it panics is no Exception, and would pass every handler."""
    try:
        return job()
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError("a library failed while it read a prompt") from error
