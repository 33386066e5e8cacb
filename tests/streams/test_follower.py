import asyncio

import pytest

from headway.core.errors import ResyncRequired
from headway.streams.follower import Follower
from headway.streams.limits import StreamLimits
from headway.streams.log import StreamLog
from headway.streams.memory_log import MemoryLog
from headway.streams.record import Entry, Page
from support.stream_logs import WallClock

pytestmark = pytest.mark.anyio

A = "a" * 32


class SlowLog(MemoryLog):
    """Answers reads when it may."""

    def __init__(self) -> None:
        super().__init__(StreamLimits(), WallClock())
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def read(self, stream_id: str, epoch: int, after: int, limit: int) -> Page:
        await self.may_answer.wait()
        return await super().read(stream_id, epoch, after, limit)


async def filled(log: StreamLog, num_events: int) -> None:
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [Entry("content", b"%d" % n) for n in range(num_events)])


async def numbers(follower: Follower, limit: int = 64) -> list[int]:
    return [event.seq for event in (await follower.next_page(limit)).events]


async def test_it_reads_page_after_page_and_ends_its_subscription() -> None:
    log = SlowLog()
    await filled(log, 5)
    with Follower(log, A, 1, 1) as follower:
        assert [await numbers(follower, 2), await numbers(follower, 2)] == [[2, 3], [4, 5]]
        assert log.news.num_subscriptions == 1
    assert log.news.num_subscriptions == 0


async def test_what_the_client_has_is_skipped_even_while_it_is_read() -> None:
    log = SlowLog()
    await filled(log, 5)
    with Follower(log, A, 1, 0) as follower:
        log.may_answer.clear()
        reading = asyncio.ensure_future(numbers(follower))
        await asyncio.sleep(0)
        follower.skip_to(3)
        follower.skip_to(2)
        await log.ack(A, 1, 3)  # what was asked for is gone
        log.may_answer.set()
        assert await reading == [4, 5]


async def test_skipping_to_what_comes_next_waits_for_it() -> None:
    log = SlowLog()
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [Entry("content", b"1")])
    with Follower(log, A, 1, 0) as follower:
        follower.skip_to(1)
        reading = asyncio.ensure_future(numbers(follower))
        await asyncio.sleep(0)
        assert not reading.done()
        await log.append(lease, 1, [Entry("content", b"2")])
        assert await reading == [2]


async def test_events_that_another_reader_acknowledged_are_a_gap() -> None:
    log = SlowLog()
    await filled(log, 5)
    with Follower(log, A, 1, 0) as follower:
        await log.ack(A, 1, 1)
        with pytest.raises(ResyncRequired):
            await follower.next_page()
