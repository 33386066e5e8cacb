"""Wakes those who follow a stream, without polling: a flag for each, not a queue.

Subscribe first, then read the log up to its end, then wait: whatever happens after the subscription raises the flag, so
nothing is missed; what is read comes from the log, so nothing is seen twice and a slow subscriber keeps nothing here.
It belongs to one event loop.
"""

import asyncio
from types import TracebackType
from typing import Self


class Subscription:
    """One who waits for news of one stream. Leaving it as a context ends it."""

    __slots__ = ("_feed", "_has_news", "_stream_id", "_waiter")

    def __init__(self, feed: "Feed", stream_id: str) -> None:
        self._feed = feed
        self._stream_id = stream_id
        self._has_news = False
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return once there was news since the last `wait`, or since the subscription; one task at a time."""
        if not self._has_news:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._has_news = False

    def notify(self) -> None:
        """Raise the flag."""
        self._has_news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feed.unsubscribe(self._stream_id, self)


class Feed:
    """Who follows which stream."""

    def __init__(self) -> None:
        self._followers: dict[str, list[Subscription]] = {}

    @property
    def num_subscriptions(self) -> int:
        """How many follow."""
        return sum(map(len, self._followers.values()))

    def subscribe(self, stream_id: str) -> Subscription:
        """Return a subscription to news of a stream, from now on."""
        subscription = Subscription(self, stream_id)
        self._followers.setdefault(stream_id, []).append(subscription)
        return subscription

    def unsubscribe(self, stream_id: str, subscription: Subscription) -> None:
        """End a subscription; one that has ended is ignored."""
        followers = self._followers.get(stream_id, [])
        if subscription in followers:
            followers.remove(subscription)
            if not followers:
                del self._followers[stream_id]

    def notify(self, stream_id: str) -> None:
        """Tell everybody who follows the stream to look."""
        for subscription in self._followers.get(stream_id, ()):
            subscription.notify()

    def notify_all(self) -> None:
        """Tell everybody to look: news may have been missed."""
        for followers in self._followers.values():
            for subscription in followers:
                subscription.notify()
