"""Who carries out a load: this process (here), or several (`lab/processes.py`); to a run they look the same."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Protocol, Self

from headway.lab.client import Client
from headway.lab.drive import Driver, Offered, Start, soon
from headway.lab.sample import Sample
from headway.lab.traffic import Traffic


class Loader(Protocol):
    """Carries out one load after another, of one traffic's conversations; an async context manager."""

    async def open(self, offsets_ns: Sequence[int]) -> Offered:
        """Start conversations at `offsets_ns` and return what became of them; raises ConfigError as `Traffic` does."""

    async def closed(
        self, num_users: int, *, num_conversations: int | None, duration_ns: int | None
    ) -> Offered:
        """Let users ask, see `Driver.closed`."""

    def stop(self) -> None:
        """End the load that runs: it returns what was over, and requests that were not are given up."""

    @property
    def num_running(self) -> int:
        """Requests that are sent and not over, as far as this process knows by now."""

    async def __aenter__(self) -> Self:
        """Make ready."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing behind."""


class LocalLoader:
    """A loader of one client in this process; its loads begin when `start` says."""

    def __init__(self, traffic: Traffic, on_sample: Callable[[Sample], None], start: Start = soon) -> None:
        options = traffic.options
        self._client = Client(options.endpoint, options.patience, traffic.token_counter())
        self._driver = Driver(
            self._client,
            traffic.body,
            lambda exchange: on_sample(Sample.of(exchange)),
            traffic.headers,
        )
        self._start = start
        self._talks = traffic.conversations()
        self._load: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """See Loader."""
        self._client.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See Loader."""
        self._client.__exit__(kind, error, trace)

    async def open(self, offsets_ns: Sequence[int]) -> Offered:
        """See Loader."""
        return await self._until_over(self._driver.open(offsets_ns, self._talks, self._start))

    async def closed(
        self, num_users: int, *, num_conversations: int | None, duration_ns: int | None
    ) -> Offered:
        """See Loader."""
        load = self._driver.closed(
            num_users,
            self._talks,
            num_conversations=num_conversations,
            duration_ns=duration_ns,
            start=self._start,
        )
        return await self._until_over(load)

    def stop(self) -> None:
        """See Loader."""
        if self._load is not None:
            self._load.cancel()

    @property
    def num_running(self) -> int:
        """See Loader."""
        return self._driver.offered.num_running

    async def _until_over(self, load: Coroutine[None, None, None]) -> Offered:
        self._driver.offered = (
            Offered()
        )  # or a load that is stopped before it begins would leave the last one's
        self._load = asyncio.create_task(load)
        try:
            await asyncio.wait({self._load})
            if not self._load.cancelled():
                self._load.result()
        finally:  # a caller that is cancelled waits for nothing more
            self._load.cancel()
            self._load = None
        return self._driver.offered
