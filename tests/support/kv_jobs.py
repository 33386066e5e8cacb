"""File work that is done when a test says so, in the order that `JobThread` has."""

from collections import deque
from collections.abc import Callable

from headway.kv.job_thread import Job


class ManualJobs:
    """`Jobs` without a thread. `max_writes`: how many may wait."""

    def __init__(self, max_writes: int = 1_000) -> None:
        self.reads: deque[Job] = deque()
        self.writes: deque[Job] = deque()
        self._max_writes = max_writes
        self._wake: Callable[[], None] = lambda: None

    def wake_with(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def read(self, job: Job) -> None:
        self.reads.append(job)

    def write(self, job: Job, num_bytes: int) -> bool:
        assert num_bytes >= 0
        if len(self.writes) >= self._max_writes:
            return False
        self.writes.append(job)
        return True

    def run(self, max_jobs: int = 1_000_000) -> int:
        """Do at most `max_jobs`; return how many there were."""
        num_done = 0
        while num_done < max_jobs and (self.reads or self.writes):
            num_done += 1
            if self.reads:
                self.reads.popleft()()
                self._wake()
            else:
                self.writes.popleft()()
        return num_done
