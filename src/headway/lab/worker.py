"""One of a run's client processes: carries out its share of each load, as `lab/processes.py` orders over standard input.

It ends when its input does, so that it never outlives a run that was killed.
"""

import asyncio
import gc
import sys
from collections.abc import Iterator

import uvloop

from headway.core.errors import HeadwayError
from headway.lab.client import Client
from headway.lab.drive import Driver
from headway.lab.frames import frame, read_frame
from headway.lab.orders import ClosedShare, Go, Job, OpenShare, Ready, Samples, Stop
from headway.lab.sample import Sample
from headway.lab.workload import Conversation

_TOLD_EVERY_S = 0.1


class _Worker:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._orders: asyncio.Queue[Job | OpenShare | ClosedShare] = asyncio.Queue()
        self._go: asyncio.Future[int] | None = None
        self._load: asyncio.Task[None] | None = None
        self._samples: list[Sample] = []

    async def serve(self) -> None:
        """Carry out orders until there are no more, or one could not be."""
        listening = asyncio.create_task(self._listen())
        working = asyncio.create_task(self._work())
        await asyncio.wait({listening, working}, return_when=asyncio.FIRST_COMPLETED)
        for task in (listening, working):
            task.cancel()
        await asyncio.wait({listening, working})
        for task in (listening, working):
            if not task.cancelled():
                task.result()

    async def _listen(self) -> None:
        while True:
            try:
                order = await read_frame(self._reader)
            except EOFError:
                return
            if isinstance(order, Stop):
                if self._load is not None:
                    self._load.cancel()
            elif isinstance(order, Go):
                if self._go is not None and not self._go.done():
                    self._go.set_result(order.start_ns)
            else:
                assert isinstance(order, Job | OpenShare | ClosedShare)
                self._orders.put_nowait(order)

    async def _work(self) -> None:
        try:
            job = await self._orders.get()
            assert isinstance(job, Job)
            traffic = job.traffic
            talks = traffic.conversations(index=job.index, count=job.count)
            options = traffic.options
            with Client(options.endpoint, options.patience, traffic.token_counter()) as client:
                driver = Driver(
                    client,
                    traffic.body,
                    lambda exchange: self._samples.append(Sample.of(exchange)),
                    traffic.headers,
                )
                gc.freeze()
                await self._tell(Ready())
                while True:
                    await self._carry_out(await self._orders.get(), driver, talks)
        except HeadwayError as error:
            await self._tell(error)

    async def _carry_out(
        self, order: Job | OpenShare | ClosedShare, driver: Driver, talks: Iterator[Conversation]
    ) -> None:
        if isinstance(order, OpenShare):
            load = driver.open(order.offsets_ns, talks, self._prepared)
        else:
            assert isinstance(order, ClosedShare)
            load = driver.closed(
                order.num_users,
                talks,
                num_conversations=order.num_conversations,
                duration_ns=order.duration_ns,
                start=self._prepared,
            )
        self._load = asyncio.create_task(load)
        telling = asyncio.create_task(self._tell_samples(driver))
        try:
            await asyncio.wait({self._load})
            if not self._load.cancelled():
                self._load.result()
        finally:
            self._load.cancel()
            telling.cancel()
            self._load = None
        await self._tell_last(driver)

    async def _prepared(self) -> int:
        self._go = asyncio.get_running_loop().create_future()
        await self._tell(Ready())
        return await self._go

    async def _tell_samples(self, driver: Driver) -> None:
        while True:
            await asyncio.sleep(_TOLD_EVERY_S)
            samples, self._samples = self._samples, []
            await self._tell(Samples(tuple(samples), driver.offered.num_running))

    async def _tell_last(self, driver: Driver) -> None:
        samples, self._samples = self._samples, []
        await self._tell(Samples(tuple(samples), 0))
        await self._tell(driver.offered)

    async def _tell(self, value: object) -> None:
        self._writer.write(frame(value))
        await self._writer.drain()


async def _main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    await _Worker(reader, asyncio.StreamWriter(transport, protocol, reader, loop)).serve()


if __name__ == "__main__":
    uvloop.run(_main())
