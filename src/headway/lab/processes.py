"""A load spread over several client processes, one per core, for endpoints that answer faster than one can stamp.

Every process makes the same conversations from the same options and sends each its own: of `count`, process i sends i,
i + count, … Starts and users are dealt out in the same way. Stamps are comparable, as the processes of a machine share its
monotonic clock. They are programs of their own (`lab/worker.py`) rather than forks, so that a caller's threads, signal
handlers and `__main__` do not matter.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from headway.core.clock import NS_PER_MS
from headway.core.errors import HeadwayError, InternalError
from headway.lab.drive import Offered
from headway.lab.frames import frame, read_frame
from headway.lab.orders import ClosedShare, Go, Job, OpenShare, Ready, Samples, Stop
from headway.lab.sample import Sample
from headway.lab.traffic import Traffic, shares

_LEAD_NS = 50 * NS_PER_MS
"""From the order to the start: it has to reach every process."""


class ProcessLoader:
    """A `Loader` of `count` processes, which live as long as its context."""

    def __init__(self, traffic: Traffic, on_sample: Callable[[Sample], None], count: int) -> None:
        self._traffic = traffic
        self._on_sample = on_sample
        self._count = count
        self._workers: list[_Process] = []
        self._going = False
        self._stopped = False

    async def __aenter__(self) -> Self:
        """Start the processes; raises HeadwayError if one cannot do what is asked."""
        try:
            for _ in range(self._count):
                self._workers.append(await _Process.start(self._on_sample))
            for index, worker in enumerate(self._workers):
                job = Job(traffic=self._traffic, index=index, count=self._count)
                worker.order(job)
            await self._all_ready()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes."""
        for worker in self._workers:
            await worker.end()
        self._workers.clear()

    async def open(self, offsets_ns: Sequence[int]) -> Offered:
        """See Loader."""
        return await self._carry_out(
            [OpenShare(tuple(offsets_ns[index :: self._count])) for index in range(self._count)]
        )

    async def closed(
        self, num_users: int, *, num_conversations: int | None, duration_ns: int | None
    ) -> Offered:
        """See Loader."""
        numbers: Sequence[int | None] = [None] * self._count
        if num_conversations is not None:
            numbers = shares(num_conversations, self._count)
        return await self._carry_out(
            [
                ClosedShare(num_users=users, num_conversations=number, duration_ns=duration_ns)
                for users, number in zip(shares(num_users, self._count), numbers, strict=True)
            ]
        )

    def stop(self) -> None:
        """See Loader."""
        self._stopped = True
        if self._going:
            self._order(Stop())

    @property
    def num_running(self) -> int:
        """See Loader."""
        return sum(worker.num_running for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """The processes' identifiers."""
        return [worker.pid for worker in self._workers]

    async def _carry_out(self, loads: Sequence[OpenShare | ClosedShare]) -> Offered:
        self._going = self._stopped = False
        for worker, share in zip(self._workers, loads, strict=True):
            worker.order(share)
        await self._all_ready()
        start_ns = time.monotonic_ns() + _LEAD_NS
        self._going = True
        self._order(Stop() if self._stopped else Go(start_ns))
        parts = await asyncio.gather(*(worker.offered() for worker in self._workers))
        self._going = False
        return Offered(
            exchanges=sorted(
                (exchange for part in parts for exchange in part.exchanges),
                key=lambda exchange: exchange.stamps.ended_ns,
            ),
            num_cut=sum(part.num_cut for part in parts),
            ended_early=next((part.ended_early for part in parts if part.ended_early), None),
            num_unsent_turns=sum(part.num_unsent_turns for part in parts),
            start_ns=start_ns,
        )

    def _order(self, order: object) -> None:
        for worker in self._workers:
            worker.order(order)

    async def _all_ready(self) -> None:
        for worker in self._workers:
            await worker.ready()


class _Process:
    def __init__(self, process: asyncio.subprocess.Process, on_sample: Callable[[Sample], None]) -> None:
        self._process = process
        self._on_sample = on_sample
        self.num_running = 0

    @property
    def pid(self) -> int:
        """Its identifier."""
        return self._process.pid

    @staticmethod
    async def start(on_sample: Callable[[Sample], None]) -> "_Process":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headway.lab.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the process that reports
        )
        return _Process(process, on_sample)

    def order(self, order: object) -> None:
        """Send an order; what became of the process shows when it is asked for its answer."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(frame(order))

    async def ready(self) -> None:
        """Wait until the last order is prepared."""
        told = await self._next()
        assert isinstance(told, Ready)

    async def offered(self) -> Offered:
        """Wait until the load is over, and return what became of it."""
        while True:
            told = await self._next()
            if isinstance(told, Offered):
                self.num_running = 0
                return told
            assert isinstance(told, Samples)
            self.num_running = told.num_running
            for sample in told.samples:
                self._on_sample(sample)

    async def end(self) -> None:
        """End the process, whatever it does."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _next(self) -> object:
        assert self._process.stdout is not None
        try:
            told = await read_frame(self._process.stdout)
        except EOFError:
            code = await self._process.wait()
            raise InternalError(
                f"A process of the measuring client ended by itself (status {code})."
            ) from None
        if isinstance(told, HeadwayError):
            raise told
        return told
