"""Follows a stream from a cursor to its end: subscribe first, replay, go on. It holds a number, not events."""

from types import TracebackType
from typing import Self

from headway.core.errors import ResyncRequired
from headway.streams.log import StreamLog
from headway.streams.record import Page

PAGE_EVENTS = 64
"""What is read at once: what a slow subscriber costs, and a burst that needs one call of the log."""


class Follower:
    """One reader. `after`: the last number it has read, or need not read. Leaving it as a context ends the subscription."""

    __slots__ = ("_epoch", "_log", "_news", "_stream_id", "after")

    def __init__(self, log: StreamLog, stream_id: str, epoch: int, after: int) -> None:
        self._log = log
        self._stream_id = stream_id
        self._epoch = epoch
        self._news = log.news.subscribe(stream_id)
        self.after = after

    async def next_page(self, limit: int = PAGE_EVENTS) -> Page:
        """Return the next events, at least one unless the page is `complete`; waits for them.

        Raises StreamNotFound or ResyncRequired when the stream went away or its numbering changed meanwhile.
        """
        while True:
            page = await self.page(limit)
            if page.events or page.complete:
                return page
            await self.wait()

    async def page(self, limit: int = PAGE_EVENTS) -> Page:
        """Return the next events, as far as there are any by now. Raises as `next_page` does."""
        while True:
            after = self.after
            try:
                page = await self._log.read(self._stream_id, self._epoch, after, limit)
            except ResyncRequired:
                if self.after == after:
                    raise
                continue
            if self.after != after:  # it was told meanwhile that it need not read so much
                continue
            if page.events:
                self.after = page.events[-1].seq
            return page

    async def wait(self) -> None:
        """Return once there may be more than the last `page` showed, or `wake` was called; one task at a time."""
        await self._news.wait()

    def wake(self) -> None:
        """End `wait`, this one or the next."""
        self._news.notify()

    def skip_to(self, seq: int) -> None:
        """Go on after `seq`, if that is ahead: the client has it, and may have acknowledged it before it was read here."""
        if seq > self.after:
            self.after = seq
            self._news.notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._news.__exit__(kind, error, trace)
