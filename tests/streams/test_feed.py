import asyncio

import pytest

from headway.streams.feed import Feed

pytestmark = pytest.mark.anyio


async def test_news_before_and_while_waiting_wake_and_are_one() -> None:
    feed = Feed()
    with feed.subscribe("a") as subscription:
        feed.notify("a")
        feed.notify("a")
        await subscription.wait()
        waiting = asyncio.ensure_future(subscription.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        feed.notify("b")
        await asyncio.sleep(0)
        assert not waiting.done()
        feed.notify("a")
        feed.notify("a")
        await waiting


async def test_all_who_follow_are_told_and_whoever_left_costs_nothing() -> None:
    feed = Feed()
    with feed.subscribe("a") as first, feed.subscribe("a") as second, feed.subscribe("b") as other:
        assert feed.num_subscriptions == 3
        feed.notify_all()
        for subscription in (first, second, other):
            await subscription.wait()
    assert feed.num_subscriptions == 0
    feed.unsubscribe("a", first)
    feed.notify("a")


async def test_a_wait_that_is_cancelled_can_be_begun_again() -> None:
    feed = Feed()
    with feed.subscribe("a") as subscription:
        waiting = asyncio.ensure_future(subscription.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        feed.notify("a")
        await subscription.wait()
