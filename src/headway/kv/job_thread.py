"""Work on files beside the step loop: reads first, since a sequence waits for them; then writes, as far as they fit.

A thread lives as long as there is something to do. It knows neither blocks nor files.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)

Job = Callable[[], None]

MAX_QUEUED_BYTES = 64 << 20
"""What may wait to be written: an eighth of a second of a disk that writes 0.5 GB/s. What does not fit is not stored."""


class Jobs(Protocol):
    """Does jobs, now or soon."""

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, after each read."""
        ...

    def read(self, job: Job) -> None:
        """Do `job` before all writes that wait."""
        ...

    def write(self, job: Job, num_bytes: int) -> bool:
        """Do `job`, or return False and do nothing because too much waits already."""
        ...


class JobThread:
    """Jobs on a thread. A daemon: what was not written at the end of the process is a miss later."""

    def __init__(self, max_queued_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._max_queued_bytes = max_queued_bytes
        self._wake: Callable[[], None] = _nobody_waits
        self._lock = threading.Lock()
        self._reads: deque[Job] = deque()
        self._writes: deque[tuple[Job, int]] = deque()
        self._num_queued_bytes = 0
        self._is_running = False
        self._has_complained = False

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake` on the thread after each read."""
        self._wake = wake

    def read(self, job: Job) -> None:
        """Queue a read."""
        with self._lock:
            self._reads.append(lambda: self._read(job))
            self._start()

    def write(self, job: Job, num_bytes: int) -> bool:
        """Queue a write of `num_bytes`, if there is room."""
        with self._lock:
            if self._num_queued_bytes + num_bytes > self._max_queued_bytes:
                return False
            self._num_queued_bytes += num_bytes
            self._writes.append((job, num_bytes))
            self._start()
        return True

    def _start(self) -> None:
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="kv files", daemon=True).start()

    def _read(self, job: Job) -> None:
        try:
            job()
        finally:
            self._wake()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:  # a bug; the next job may do better, or fail as often as there are blocks
                if not self._has_complained:
                    logger.exception("a KV block could not be moved; further failures are not logged")
                    self._has_complained = True

    def _next(self) -> Job | None:
        with self._lock:
            if self._reads:
                return self._reads.popleft()
            if self._writes:
                job, num_bytes = self._writes.popleft()
                self._num_queued_bytes -= num_bytes
                return job
            self._is_running = False
            return None


def _nobody_waits() -> None:
    """Stand in for whoever will wait."""
