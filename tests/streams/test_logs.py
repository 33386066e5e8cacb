"""One contract, held by every log."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.core.errors import InvalidRequest, ResyncRequired, StreamLogFull, StreamNotFound
from headway.streams.follower import Follower
from headway.streams.ids import START, Cursor
from headway.streams.limits import StreamLimits
from headway.streams.log import LeaseLost, StreamExists, StreamLog
from headway.streams.record import Entry, Lease, StreamRecord, attach
from support.stream_logs import KINDS, LIMITS, Gateways, open_gateways

pytestmark = pytest.mark.anyio

A, B, C = "a" * 32, "b" * 32, "c" * 32


def entry(text: str, name: str | None = None) -> Entry:
    return Entry("content", text.encode(), name)


END = Entry("control", b"[DONE]")


@pytest.fixture(params=KINDS)
async def gateways(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateways]:
    async with open_gateways(request.param, tmp_path) as gateways:
        yield gateways


async def texts(
    log: StreamLog, stream_id: str, after: int = 0, limit: int = 100, epoch: int = 1
) -> list[str]:
    page = await log.read(stream_id, epoch, after, limit)
    assert [event.seq for event in page.events] == list(range(after + 1, after + 1 + len(page.events)))
    return [event.entry.data.decode() for event in page.events]


async def found(log: StreamLog, stream_id: str) -> StreamRecord:
    record = await log.find(stream_id)
    assert record is not None
    return record


async def test_events_are_numbered_and_read_in_order_as_they_were(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"\x00meta")
    assert await log.read(A, 1, 0, 10) == ((), False)
    assert await log.append(lease, 0, [entry("x"), Entry("control", b"{}", "message_stop")]) == 2
    assert await log.append(lease, 2, [entry("naïve 🎈")]) == 3
    page = await log.read(A, 1, 0, 10)
    assert [event.entry for event in page.events] == [
        entry("x"),
        Entry("control", b"{}", "message_stop"),
        entry("naïve 🎈"),
    ]
    assert not page.complete
    assert await texts(gateways.two, A, 1) == ["{}", "naïve 🎈"]
    assert await texts(log, A, 1, limit=1) == ["{}"]
    assert await texts(log, A, 3) == []
    assert await log.find(A) == StreamRecord(
        stream_id=A, owner="tok", created_ms=gateways.clock.ms, meta=b"\x00meta", last_seq=3
    )


async def test_a_stream_begins_with_its_first_events_and_progress_or_not_at_all(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"meta", [entry("1"), entry("2")], b"p")
    assert await texts(gateways.two, A) == ["1", "2"]
    assert await log.append(lease, 2, [entry("3")], b"q") == 3
    gateways.clock.ms += LIMITS.lease_ms
    recovery = await gateways.two.take_over(A)
    assert recovery is not None
    assert (recovery.progress, recovery.record.last_seq, recovery.record.meta) == ((b"p", b"q"), 3, b"meta")
    for _ in range(2):
        with pytest.raises(StreamLogFull):
            await log.create(B, "tok", b"", [entry("x")] * (LIMITS.max_total_events - 2))
        assert await log.find(B) is None
    await log.create(B, "tok", b"", [entry("x")])


async def test_the_last_append_ends_the_stream(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [entry("x")])
    assert await log.append(lease, 1, [END], end="ended") == 2
    assert (await log.read(A, 1, 0, 1)).complete is False
    assert (await log.read(A, 1, 0, 2)).complete is True
    assert await log.read(A, 1, 2, 2) == ((), True)
    assert (await found(log, A)).state == "ended"
    with pytest.raises(LeaseLost):
        await log.append(lease, 2, [entry("more")])
    with pytest.raises(LeaseLost):
        await log.renew(lease)


async def test_an_unknown_stream_is_not_found(gateways: Gateways) -> None:
    log = gateways.one
    assert await log.find(A) is None
    with pytest.raises(StreamNotFound):
        await log.read(A, 1, 0, 10)
    with pytest.raises(StreamNotFound):
        await log.ack(A, 1, 0)
    with pytest.raises(LeaseLost):
        await log.append(Lease(A, 1), 0, [entry("x")])
    with pytest.raises(LeaseLost):
        await log.renew(Lease(A, 1))
    assert await log.take_over(A) is None
    await log.remove(A)
    assert await log.find(A) is None


async def test_no_id_is_used_again_not_even_one_of_a_stream_that_is_gone(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    for _ in range(2):
        with pytest.raises(StreamExists):
            await gateways.two.create(A, "other", b"")
        assert (await found(log, A)).owner == "tok"
        await log.remove(A)
    with pytest.raises(LeaseLost):
        await log.append(lease, 0, [entry("1")])


async def test_acknowledged_events_are_dropped_and_cannot_be_read_again(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [entry("1"), entry("2"), entry("3")])
    await gateways.two.ack(A, 1, 2)
    assert await texts(log, A, 2) == ["3"]
    assert ((await found(log, A)).acked, (await found(log, A)).last_seq) == (2, 3)
    for after in (0, 1):
        with pytest.raises(ResyncRequired):
            await log.read(A, 1, after, 10)
    await log.ack(A, 1, 1)  # an older acknowledgement changes nothing
    await log.ack(A, 1, 2)
    assert await texts(log, A, 2) == ["3"]
    await log.ack(A, 1, 3)
    assert await texts(log, A, 3) == []
    assert await log.append(lease, 3, [entry("4")]) == 4
    assert await texts(log, A, 3) == ["4"]


async def test_what_was_never_there_is_neither_acknowledged_nor_read(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [entry("1")])
    with pytest.raises(InvalidRequest) as caught:
        await log.ack(A, 1, 2)
    assert caught.value.param == "seq"
    with pytest.raises(ResyncRequired):
        await log.read(A, 1, 2, 10)
    with pytest.raises(ResyncRequired):
        await log.ack(A, 2, 1)
    with pytest.raises(ResyncRequired):
        await log.read(A, 2, 0, 10)
    assert await texts(log, A) == ["1"]


async def test_a_full_stream_takes_nothing_until_events_are_acknowledged(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    assert await log.append(lease, 0, [entry(str(n)) for n in range(3)], b"p") == 3
    assert await log.append(lease, 3, [entry("3"), entry("4")], b"q") is None
    assert await texts(log, A) == ["0", "1", "2"]
    await log.ack(A, 1, 1)
    assert await log.append(lease, 3, [entry("3"), entry("4")], b"q") == 5
    assert await log.append(lease, 5, [entry("x" * 97)]) is None
    await log.ack(A, 1, 5)
    assert await log.append(lease, 5, [entry("x" * 97)]) == 6
    assert await log.append(lease, 6, [entry("yyy", "n")]) is None
    assert await log.append(lease, 6, [entry("yy", "n")]) == 7


async def test_an_empty_stream_takes_one_append_of_any_size_and_an_end_always_fits(
    gateways: Gateways,
) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    assert await log.append(lease, 0, [entry("x") for _ in range(6)]) == 6
    assert await log.append(lease, 6, [entry("x")]) is None
    assert await log.append(lease, 6, [], b"tokens without text") is None
    assert await log.append(lease, 6, [Entry("error", b"e" * 300)], end="failed") == 7
    assert (await found(log, A)).state == "failed"
    assert (await log.read(A, 1, 6, 10)).events[0].entry == Entry("error", b"e" * 300)


async def test_all_streams_together_are_bounded(gateways: Gateways) -> None:
    log = gateways.one
    a, b, c = [await log.create(stream_id, "tok", b"") for stream_id in (A, B, C)]
    await log.append(a, 0, [entry("x")] * 4)
    await gateways.two.append(b, 0, [entry("x")] * 3)
    assert await log.append(c, 0, [entry("x")] * 2) is None
    assert await log.append(c, 0, [entry("x")]) == 1
    await log.ack(A, 1, 2)
    assert await log.append(c, 1, [entry("x")] * 2) == 3
    assert await log.append(c, 3, [entry("x")]) is None
    await log.remove(B)
    assert await log.append(c, 3, [entry("x")]) == 4
    await log.ack(C, 1, 4)
    assert await log.append(c, 4, [entry("x" * 190)]) == 5
    with pytest.raises(StreamLogFull):
        await log.create("d" * 32, "tok", b"m" * 9)
    await log.create("d" * 32, "tok", b"m" * 6)
    await log.remove(C)
    await log.create("e" * 32, "tok", b"m" * 9)


async def test_no_more_streams_are_kept_than_configured(gateways: Gateways) -> None:
    log = gateways.one
    for n in range(5):
        await log.create(f"{n:032x}", "tok", b"")
    with pytest.raises(StreamLogFull):
        await log.create(A, "tok", b"")
    await log.remove(f"{3:032x}")
    await log.create(A, "tok", b"")


async def test_a_stale_last_event_appends_nothing(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [entry("1"), entry("2")])
    for after in (0, 1, 3):
        with pytest.raises(ResyncRequired):
            await log.append(lease, after, [entry("x")])
    assert await texts(log, A) == ["1", "2"]


async def test_a_stream_is_taken_over_only_when_its_lease_ran_out_and_by_one(gateways: Gateways) -> None:
    log, other, clock = gateways.one, gateways.two, gateways.clock
    lease = await log.create(A, "tok", b"m")
    await log.append(lease, 0, [entry("1")], b"p1")
    clock.ms += 299
    assert await other.orphans() == []
    assert await other.take_over(A) is None
    await log.append(lease, 1, [entry("2")], b"p2")
    clock.ms += 299
    await log.renew(lease)
    clock.ms += 299
    assert await other.orphans() == []
    clock.ms += 1
    assert await other.orphans() == [A]
    recovery = await other.take_over(A)
    assert recovery is not None
    assert recovery.progress == (b"p1", b"p2")
    assert (recovery.record.epoch, recovery.record.last_seq, recovery.record.meta) == (1, 2, b"m")
    assert await log.orphans() == []
    assert await log.take_over(A) is None
    for late in (log.append(lease, 2, [entry("splice")]), log.renew(lease), log.new_epoch(lease)):
        with pytest.raises(LeaseLost):
            await late
    assert await other.append(recovery.lease, 2, [entry("3")]) == 3
    assert await texts(log, A) == ["1", "2", "3"]


async def test_progress_is_kept_for_tokens_without_events_and_until_the_end(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [], b"\x00\x01")
    await log.append(lease, 0, [entry("1")], b"")
    await log.append(lease, 1, [entry("2")], b"\x02")
    await log.ack(A, 1, 2)
    gateways.clock.ms += 300
    recovery = await gateways.two.take_over(A)
    assert recovery is not None
    assert recovery.progress == (b"\x00\x01", b"\x02")


async def test_of_two_who_take_over_at_once_one_does(gateways: Gateways) -> None:
    await gateways.one.create(A, "tok", b"")
    gateways.clock.ms += 300
    taken = await asyncio.gather(*(log.take_over(A) for log in (gateways.one, gateways.two) * 3))
    assert len([recovery for recovery in taken if recovery is not None]) == 1


async def test_a_new_epoch_begins_with_nothing_and_refuses_the_numbers_of_the_old_one(
    gateways: Gateways,
) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"m")
    await log.append(lease, 0, [entry("1"), entry("2")], b"p")
    await log.ack(A, 1, 1)
    assert await log.new_epoch(lease) == 2
    assert await log.append(lease, 0, [entry("one")], b"q") == 1
    assert await texts(log, A, epoch=2) == ["one"]
    for stale in (log.read(A, 1, 1, 10), log.ack(A, 1, 1)):
        with pytest.raises(ResyncRequired):
            await stale
    gateways.clock.ms += 300
    recovery = await log.take_over(A)
    assert recovery is not None
    assert (recovery.progress, recovery.record.epoch, recovery.record.acked) == ((b"q",), 2, 0)


async def test_what_is_over_expires_and_is_remembered_as_gone_for_a_while(gateways: Gateways) -> None:
    log, clock = gateways.one, gateways.clock
    lease = await log.create(A, "tok", b"secret")
    await log.append(lease, 0, [END], end="ended")
    clock.ms += 999
    assert await log.expire() == 0
    assert await texts(log, A) == ["[DONE]"]
    clock.ms += 1
    assert await log.expire() == 1
    record = await found(log, A)
    assert (record.state, record.meta, record.owner) == ("gone", b"", "tok")
    for gone in (log.read(A, 1, 0, 1), log.read(A, 1, 1, 1), log.ack(A, 1, 1)):
        with pytest.raises(ResyncRequired):
            await gone
    clock.ms += 4999
    assert await gateways.two.expire() == 0
    assert await log.find(A) is not None
    clock.ms += 1
    assert await gateways.two.expire() == 0
    assert await log.find(A) is None


async def test_where_it_is_crowded_what_ended_first_goes_before_its_time(gateways: Gateways) -> None:
    log, clock = gateways.one, gateways.clock
    names = [f"{n:032x}" for n in range(5)]
    for number, name in enumerate(names):
        lease = await log.create(name, "tok", b"")
        if number != 1:
            await log.append(lease, 0, [END], end="ended")
        clock.ms += 1
    assert await gateways.two.expire() >= 2  # of five, three quarters may stay
    assert [(await found(log, name)).state for name in names[:3]] == ["gone", "open", "gone"]
    await log.create(A, "tok", b"")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "limits",
    [
        StreamLimits(max_total_events=40, settle_ms=1),
        StreamLimits(max_total_bytes=40 * entry("x").num_bytes, settle_ms=1),
    ],
    ids=["events", "bytes"],
)
async def test_events_and_bytes_crowd_too_but_what_is_open_stays(
    kind: str, limits: StreamLimits, tmp_path: Path
) -> None:
    async with open_gateways(kind, tmp_path, limits) as gateways:
        log = gateways.one
        lease = await log.create(A, "tok", b"")
        await log.append(lease, 0, [entry("x")] * 20)
        for name, count in ((B, 4), (C, 6)):
            ended = await log.create(name, "tok", b"")
            await log.append(ended, 0, [entry("x")] * count, end="ended")
            gateways.clock.ms += 1
        assert await log.expire() == 0
        await log.append(lease, 20, [entry("x")])  # 31 of 40
        assert await log.expire() >= 1
        assert (await found(log, B)).state == "gone"
        await log.append(lease, 21, [entry("x")] * 12)
        await log.expire()
        assert ((await found(log, C)).state, (await found(log, A)).state) == ("gone", "open")
        assert await log.expire() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_what_has_only_just_ended_stays_however_crowded_it_is(kind: str, tmp_path: Path) -> None:
    limits = StreamLimits(max_streams=4, ttl_ms=1000, settle_ms=100)
    async with open_gateways(kind, tmp_path, limits) as gateways:
        log, clock = gateways.one, gateways.clock
        for name in (A, B, C, "d" * 32):
            await log.append(await log.create(name, "tok", b""), 0, [END], end="ended")
            clock.ms += 50
        clock.ms -= 1  # A ended 199 ms ago, B 149, C 99
        assert await log.expire() >= 1  # of four, three may stay
        await log.remove(B)
        for name in ("e" * 32, "f" * 32):
            await log.create(name, "tok", b"")
        assert await log.expire() == 0
        assert [(await found(log, name)).state for name in (A, C, "d" * 32)] == ["gone", "ended", "ended"]
        clock.ms += 1
        assert await log.expire() >= 1
        assert (await found(log, C)).state == "gone"


async def test_an_open_stream_does_not_expire(gateways: Gateways) -> None:
    await gateways.one.create(A, "tok", b"")
    gateways.clock.ms += 10_000_000
    assert await gateways.one.expire() == 0
    assert await gateways.one.orphans() == [A]


async def test_names_of_what_is_gone_are_bounded_too(gateways: Gateways) -> None:
    log = gateways.one
    for n in range(7):
        await log.create(f"{n:032x}", "tok", b"")
        await log.remove(f"{n:032x}")
        gateways.clock.ms += 1
    await log.expire()
    known = [n for n in range(7) if await log.find(f"{n:032x}") is not None]
    assert known == [2, 3, 4, 5, 6]


async def test_a_removed_stream_stops_its_holder_and_its_readers(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [entry("1")])
    with Follower(log, A, 1, 1) as follower:
        waiting = asyncio.ensure_future(follower.next_page())
        await asyncio.sleep(0)
        await gateways.two.remove(A)
        with pytest.raises(ResyncRequired):
            await waiting
    with pytest.raises(LeaseLost):
        await log.append(lease, 1, [entry("2")])
    await log.remove(A)
    assert (await found(log, A)).state == "gone"


@pytest.mark.parametrize("kind", KINDS)
async def test_followers_see_every_event_once_wherever_they_begin(kind: str, tmp_path: Path) -> None:
    async with open_gateways(kind, tmp_path, StreamLimits()) as gateways:
        log, other = gateways.one, gateways.two
        lease = await log.create(A, "tok", b"")
        await log.append(lease, 0, [entry("1"), entry("2")])

        async def follow(reader: StreamLog, after: int) -> list[int]:
            numbers: list[int] = []
            with Follower(reader, A, 1, after) as follower:
                while True:
                    page = await follower.next_page(limit=2)
                    numbers += [event.seq for event in page.events]
                    if page.complete:
                        return numbers

        followers = [
            asyncio.ensure_future(follow(reader, after)) for reader in (log, other) for after in (0, 1, 2)
        ]
        for seq in range(2, 20):
            await asyncio.sleep(0)
            await log.append(lease, seq, [entry(str(seq))])
        await log.append(lease, 20, [END], end="ended")
        for numbers, after in zip(await asyncio.gather(*followers), (0, 1, 2) * 2, strict=True):
            assert numbers == list(range(after + 1, 22))
        assert log.news.num_subscriptions == other.news.num_subscriptions == 0


async def test_acknowledging_wakes_who_waits_for_room(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [entry("x")] * 4)
    with log.room.subscribe(A) as room:
        assert await log.append(lease, 4, [entry("y")]) is None
        await gateways.two.ack(A, 1, 1)
        await room.wait()
    assert await log.append(lease, 4, [entry("y")]) == 5


async def test_attaching_checks_the_owner_the_epoch_and_the_place(gateways: Gateways) -> None:
    log = gateways.one
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, [entry("1"), entry("2"), entry("3")])
    record = await found(log, A)
    assert attach(record, "tok", START) == 0
    assert attach(record, "tok", Cursor(1, 3)) == 3
    refusals = []
    for who, what in (("other", record), ("tok", await log.find(B))):
        with pytest.raises(StreamNotFound) as caught:
            attach(what, who, Cursor(1, 3))
        refusals.append(caught.value.message)
    assert refusals[0] == refusals[1]
    await log.ack(A, 1, 2)
    record = await found(log, A)
    for cursor in (START, Cursor(1, 1), Cursor(1, 4), Cursor(2, 2)):
        with pytest.raises(ResyncRequired):
            attach(record, "tok", cursor)
    await log.remove(A)
    with pytest.raises(ResyncRequired):
        attach(await log.find(A), "tok", Cursor(1, 3))
    with pytest.raises(StreamNotFound):
        attach(await log.find(A), "other", Cursor(1, 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "limits",
    [StreamLimits(max_total_events=40), StreamLimits(max_total_bytes=40 * entry("x").num_bytes)],
    ids=["events", "bytes"],
)
async def test_one_owner_cannot_fill_what_all_have_together(
    kind: str, limits: StreamLimits, tmp_path: Path
) -> None:
    async with open_gateways(kind, tmp_path, limits) as gateways:
        log, other = gateways.one, gateways.two
        greedy = await log.create(A, "greedy", b"")
        assert await log.append(greedy, 0, [entry("x")] * 35) == 35  # alone, he may have it all
        modest = await other.create(B, "modest", b"")
        assert await log.append(greedy, 35, [entry("x")]) is None  # 35 of 40, and half is his part
        assert await other.append(modest, 0, [entry("x")] * 5) == 5
        assert await other.append(modest, 5, [entry("x")]) is None  # there is no more
        await log.ack(A, 1, 20)
        assert await other.append(modest, 5, [entry("x")] * 10) == 15  # 30 of 40: it is not crowded
        assert await log.append(greedy, 35, [entry("x")] * 5) == 40  # his part, exactly
        assert await log.append(greedy, 40, [entry("x")]) is None
        assert await other.append(modest, 15, [entry("x")] * 5) == 20
        await other.remove(B)
        assert await log.append(greedy, 40, [entry("x")] * 20) == 60  # alone again


@pytest.mark.parametrize("kind", KINDS)
async def test_one_owner_cannot_begin_all_the_streams_that_there_may_be(kind: str, tmp_path: Path) -> None:
    async with open_gateways(kind, tmp_path, StreamLimits(max_streams=8, settle_ms=1)) as gateways:
        log = gateways.one
        for number in range(6):
            await log.create(f"{number:032x}", "greedy", b"")
        await log.create(A, "modest", b"")
        with pytest.raises(StreamLogFull):
            await log.create(B, "greedy", b"")
        await log.create(B, "modest", b"")
        with pytest.raises(StreamLogFull):
            await gateways.two.create(C, "third", b"")
        for number in range(3):
            await gateways.two.remove(f"{number:032x}")
        await gateways.two.create(C, "third", b"")
        with pytest.raises(StreamLogFull):
            await log.create("d" * 32, "greedy", b"")  # of eight a third is less than four
