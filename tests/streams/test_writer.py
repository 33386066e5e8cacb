import asyncio
from collections.abc import Sequence

import pytest

from headway.core.clock import ManualClock
from headway.core.errors import ResyncRequired, StreamLogUnavailable, StreamUnread
from headway.streams.limits import StreamLimits
from headway.streams.log import LeaseLost
from headway.streams.memory_log import MemoryLog
from headway.streams.record import EndState, Entry, Lease
from headway.streams.writer import StreamOver, StreamWriter
from support.stream_logs import WallClock

pytestmark = pytest.mark.anyio

A = "a" * 32
ERROR = Entry("error", b"{}")


def content(*texts: str) -> list[Entry]:
    return [Entry("content", text.encode()) for text in texts]


async def writer_on(log: MemoryLog, clock: ManualClock, patience_ns: int = 1000) -> StreamWriter:
    lease = await log.create(A, "tok", b"")
    return StreamWriter(log, lease, 0, clock=clock, patience_ns=patience_ns)


def small_log() -> MemoryLog:
    return MemoryLog(StreamLimits(max_events=2), WallClock())


async def texts(log: MemoryLog, after: int = 0) -> list[str]:
    return [event.entry.data.decode() for event in (await log.read(A, 1, after, 100)).events]


async def test_a_full_log_pauses_the_writer_until_there_is_room() -> None:
    log = small_log()
    writer = await writer_on(log, ManualClock())
    await writer.write(content("1", "2"), b"p")
    writing = asyncio.ensure_future(writer.write(content("3")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not writing.done()
    await log.ack(A, 1, 1)
    await writing
    assert (await texts(log, 1), writer.last_seq) == (["2", "3"], 3)
    await writer.end([Entry("control", b"[DONE]")])
    assert (await log.read(A, 1, 3, 9)).complete
    assert log.room.num_subscriptions == 0


async def test_patience_ends_and_then_the_stream_is_failed_with_what_is_numbered_before_it() -> None:
    log, clock = small_log(), ManualClock()
    writer = await writer_on(log, clock)
    await writer.write(content("1", "2"))
    writing = asyncio.ensure_future(writer.write(content("3")))
    for _ in range(5):
        await asyncio.sleep(0)
    clock.advance(1000)
    with pytest.raises(StreamUnread):  # the timer of the loop wakes it
        await writing
    await writer.fail(ERROR)
    assert await texts(log) == ["1", "2", "{}"]
    record = await log.find(A)
    assert record is not None
    assert record.state == "failed"


async def test_an_error_overtakes_what_waits_for_room() -> None:
    log = small_log()
    writer = await writer_on(log, ManualClock())
    await writer.write(content("1", "2"))
    writing = asyncio.ensure_future(writer.write(content("dropped")))
    for _ in range(5):
        await asyncio.sleep(0)
    await writer.fail(ERROR)
    with pytest.raises(StreamOver):
        await writing
    assert await texts(log) == ["1", "2", "{}"]
    for late in (writer.write(content("4")), writer.end([]), writer.fail(ERROR)):
        with pytest.raises(StreamOver):
            await late


async def test_a_writer_that_is_cancelled_while_the_log_writes_knows_what_is_in_it() -> None:
    class SlowLog(MemoryLog):
        appends_at_once = False

        def __init__(self) -> None:
            super().__init__(StreamLimits(), WallClock())
            self.may_go_on = asyncio.Event()

        async def append(
            self,
            lease: Lease,
            after: int,
            entries: Sequence[Entry],
            progress: bytes = b"",
            end: EndState | None = None,
        ) -> int | None:
            await self.may_go_on.wait()
            return await super().append(lease, after, entries, progress, end)

    log = SlowLog()
    writer = await writer_on(log, ManualClock())
    writing = asyncio.ensure_future(writer.write(content("1")))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait({writing})
    assert writing.cancelled()
    failing = asyncio.ensure_future(writer.fail(ERROR))
    await asyncio.sleep(0)
    log.may_go_on.set()
    await failing
    assert await texts(log) == ["1", "{}"]


class DeafLog(MemoryLog):
    """Appends, and says that it could not, as a log on another machine may."""

    appends_at_once = False

    is_deaf = False

    async def append(
        self,
        lease: Lease,
        after: int,
        entries: Sequence[Entry],
        progress: bytes = b"",
        end: EndState | None = None,
    ) -> int | None:
        last_seq = await super().append(lease, after, entries, progress, end)
        if self.is_deaf:
            raise StreamLogUnavailable("no answer")
        return last_seq


async def test_after_an_append_that_was_not_answered_an_error_follows_what_is_in_the_log() -> None:
    log = DeafLog(StreamLimits(), WallClock())
    writer = await writer_on(log, ManualClock())
    await writer.write(content("1"))
    log.is_deaf = True
    with pytest.raises(StreamLogUnavailable):
        await writer.write(content("2"))
    log.is_deaf = False
    await writer.fail(ERROR)
    assert await texts(log) == ["1", "2", "{}"]


async def test_after_an_append_that_was_not_answered_a_stream_that_is_over_is_left() -> None:
    log = DeafLog(StreamLimits(), WallClock())
    writer = await writer_on(log, ManualClock())
    log.is_deaf = True
    with pytest.raises(StreamLogUnavailable):
        await writer.end([Entry("control", b"[DONE]")])
    with pytest.raises(LeaseLost):
        await writer.fail(ERROR)
    assert await texts(log) == ["[DONE]"]


async def test_whoever_lost_the_lease_or_the_log_hears_of_it() -> None:
    log = small_log()
    writer = await writer_on(log, ManualClock())
    await log.remove(A)
    for late in (writer.write(content("1")), writer.renew(), writer.fail(ERROR)):
        with pytest.raises(LeaseLost):
            await late
    lease = await log.create("b" * 32, "tok", b"")
    with pytest.raises(ResyncRequired):
        await StreamWriter(log, lease, 7, clock=ManualClock()).write(content("8"))
