"""Several loads at once against one endpoint, each a stream with its own workload, arrivals, seed and headers.

They are sent by this process, each by a client of its own, and begin at one zero, when the last of them is prepared. Records
say which stream they are of; conversations of all streams have numbers of their own. It knows no figures.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from headway.lab.drive import LEAD_NS, Offered, no_collections
from headway.lab.exchange import Exchange
from headway.lab.loader import LocalLoader
from headway.lab.offer import Offer
from headway.lab.sample import Sample
from headway.lab.traffic import Traffic


class Together:
    """The start of `count` loads: whoever awaits it goes on when all do, at one time."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._start_ns: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> int:
        """Wait for the others; return the zero of all."""
        self._left -= 1
        if self._left == 0:
            self._start_ns.set_result(time.monotonic_ns() + LEAD_NS)
        return await asyncio.shield(self._start_ns)


class StreamLoader:
    """Offers several traffics, by name, once; an async context manager."""

    def __init__(self, traffics: Mapping[str, Traffic], on_sample: Callable[[Sample], None]) -> None:
        self._names = tuple(traffics)
        start = Together(len(traffics))
        self._loaders = [LocalLoader(traffic, on_sample, start) for traffic in traffics.values()]
        self._offers = [
            Offer(loader, traffic) for loader, traffic in zip(self._loaders, traffics.values(), strict=True)
        ]
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Make ready."""
        for loader in self._loaders:
            await self._open.enter_async_context(loader)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self._open.aclose()

    async def carry_out(self) -> list[Offered]:
        """Return what became of all of them, as one part; raises what the first that cannot be carried out raises."""
        with no_collections():  # of all: the first to end would let the others be collected
            loads = [asyncio.create_task(offer.carry_out()) for offer in self._offers]
            try:
                await asyncio.wait(loads, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for load in loads:
                    load.cancel()
                await asyncio.wait(loads)
        for load in loads:
            if not load.cancelled() and (error := load.exception()) is not None:
                raise error
        return [merged(self._names, [part for load in loads for part in load.result()])]

    def stop(self) -> None:
        """End all of them: what was over is kept."""
        for offer in self._offers:
            offer.stop()

    @property
    def num_running(self) -> int:
        """Requests that are sent and not over."""
        return sum(loader.num_running for loader in self._loaders)


def merged(names: Sequence[str], parts: Sequence[Offered]) -> Offered:
    """Return streams' parts as one, records in the order of their ends; fewer parts than names where it was stopped."""
    return Offered(
        exchanges=sorted(
            (
                labelled(exchange, name, index, len(names))
                for index, (name, part) in enumerate(zip(names, parts, strict=False))
                for exchange in part.exchanges
            ),
            key=lambda exchange: exchange.stamps.ended_ns,
        ),
        num_cut=sum(part.num_cut for part in parts),
        ended_early=next((part.ended_early for part in parts if part.ended_early), None),
        num_unsent_turns=sum(part.num_unsent_turns for part in parts),
        start_ns=next((part.start_ns for part in parts if part.start_ns is not None), None),
    )


def labelled(exchange: Exchange, name: str, index: int, count: int) -> Exchange:
    """Return a record of stream `index` of `count`; its conversation's number is no other stream's."""
    return replace(exchange, stream=name, conversation=exchange.conversation * count + index)
