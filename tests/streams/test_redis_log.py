"""What only Redis can promise, and what it cannot: see `test_logs.py` for the contract. The server is real."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from headway.core.errors import ConfigError, ResyncRequired, StreamLogUnavailable
from headway.streams.follower import Follower
from headway.streams.ids import Cursor
from headway.streams.limits import StreamLimits
from headway.streams.log import LeaseLost
from headway.streams.record import Entry, attach
from headway.streams.redis_log import RedisLog
from headway.streams.redis_script import PREFIX
from support.redis_server import RedisServer, needs_redis, redis_server
from support.stream_logs import WallClock

pytestmark = [pytest.mark.anyio, needs_redis]

A = "a" * 32


def content(*texts: str) -> list[Entry]:
    return [Entry("content", text.encode()) for text in texts]


@asynccontextmanager
async def opened(
    server: RedisServer, clock: WallClock | None = None, timeout_s: float = 1.0
) -> AsyncIterator[RedisLog]:
    log = await RedisLog.open(server.url, StreamLimits(), clock or WallClock(), timeout_s=timeout_s)
    try:
        yield log
    finally:
        await log.close()


async def texts(log: RedisLog, after: int = 0, epoch: int = 1) -> list[str]:
    return [event.entry.data.decode() for event in (await log.read(A, epoch, after, 1000)).events]


async def test_of_two_gateways_that_both_believe_to_hold_a_stream_one_appends(tmp_path: Path) -> None:
    clock = WallClock()
    with redis_server(tmp_path) as server:
        async with opened(server, clock) as one, opened(server, clock) as two:
            lease = await one.create(A, "tok", b"")
            clock.ms += StreamLimits().lease_ms
            recovery = await two.take_over(A)
            assert recovery is not None

            async def write(log: RedisLog, number: int) -> int:
                held, last_seq, count = (lease, recovery.lease)[number], 0, 0
                while count < 20:
                    try:
                        last_seq = await log.append(held, last_seq, content(f"{number}")) or 0
                    except LeaseLost:
                        return count
                    count += 1
                return count

            assert tuple(await asyncio.gather(write(one, 0), write(two, 1))) == (0, 20)
            assert await texts(one) == ["1"] * 20


async def test_a_reader_at_one_gateway_is_woken_by_the_other(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server) as one, opened(server) as two:
            lease = await one.create(A, "tok", b"")
            with Follower(two, A, 1, 0) as follower:
                for seq in range(5):
                    waiting = asyncio.ensure_future(follower.next_page())
                    await asyncio.sleep(0)
                    await one.append(lease, seq, content(str(seq)))
                    assert [event.seq for event in (await waiting).events] == [seq + 1]


async def test_a_server_that_is_killed_and_comes_back_empty_is_noticed(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server) as log:
            lease = await log.create(A, "tok", b"")
            await log.append(lease, 0, content("1"))
            server.kill()
            for call in (log.append(lease, 1, content("2")), log.find(A), log.orphans(), log.expire()):
                with pytest.raises(StreamLogUnavailable):
                    await call
            server.start()
            assert await log.find(A) is None  # the script is not known there either
            with pytest.raises(LeaseLost):
                await log.append(lease, 1, content("2"))
            again = await log.create(A, "tok", b"")
            assert await log.append(again, 0, content("1")) == 1


async def test_streams_taken_over_from_another_run_of_the_server_are_numbered_anew(tmp_path: Path) -> None:
    clock = WallClock()
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        async with opened(server, clock) as log:
            lease = await log.create(A, "tok", b"m")
            await log.append(lease, 0, content("1", "2"), b"p")
            server.kill()
            server.start()
            assert await texts(log) == ["1", "2"]
            assert await log.append(lease, 2, content("3")) == 3  # whoever knows the last event goes on
            clock.ms += StreamLimits().lease_ms
            recovery = await log.take_over(A)
            assert recovery is not None
            assert (recovery.record.epoch, recovery.progress, recovery.record.last_seq) == (2, (b"p",), 3)
            with pytest.raises(ResyncRequired):
                attach(await log.find(A), "tok", Cursor(1, 3))
            clock.ms += StreamLimits().lease_ms
            recovery = await log.take_over(A)
            assert recovery is not None
            assert recovery.record.epoch == 2


async def test_events_that_the_server_forgot_are_not_written_over(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server) as log:
            lease = await log.create(A, "tok", b"")
            await log.append(lease, 0, content("1", "2", "3"))
            await log._script._client.hset(
                f"{PREFIX}stream:{A}", "last", 2
            )  # as after a failover to a replica that lags
            await log._script._client.rpop(f"{PREFIX}events:{A}")
            with pytest.raises(ResyncRequired):
                await log.append(lease, 3, content("4"))
            with pytest.raises(ResyncRequired):
                await log.read(A, 1, 3, 10)
            assert await texts(log) == ["1", "2"]


async def test_events_that_a_server_short_of_memory_evicted_are_missed(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server) as log:
            lease = await log.create(A, "tok", b"")
            await log.append(lease, 0, content("1", "2", "3"))
            await log._script._client.delete(f"{PREFIX}events:{A}")
            with pytest.raises(ResyncRequired):
                await log.read(A, 1, 0, 10)


async def test_an_append_whose_answer_was_lost_is_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server) as log:
            lease = await log.create(A, "tok", b"")
            ask = log._script._courier.evalsha
            lost: list[object] = []

            async def evalsha(sha: str, call: tuple[object, ...]) -> object:
                answer = await ask(sha, call)
                if not lost:
                    lost.append(answer)
                    raise TimeoutError
                return answer

            monkeypatch.setattr(log._script._courier, "evalsha", evalsha)
            assert await log.append(lease, 0, content("1")) == 1
            assert lost
            assert await texts(log) == ["1"]
            assert await log.append(lease, 1, content("2")) == 2


async def test_what_all_streams_ask_in_one_turn_of_the_loop_goes_in_one_message(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server) as log:
            leases = [await log.create(f"{n:032x}", "tok", b"") for n in range(300)]
            before = await log._script._client.info("clients")
            results = await asyncio.gather(*(log.append(lease, 0, content("x")) for lease in leases))
            assert results == [1] * 300
            after = await log._script._client.info("clients")
            assert after["connected_clients"] == before["connected_clients"]


async def test_a_server_that_is_too_slow_is_unavailable_not_waited_for(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server, timeout_s=0.05) as log:
            lease = await log.create(A, "tok", b"")
            server.pause()
            with pytest.raises(StreamLogUnavailable):
                await log.append(lease, 0, content("1"))
            server.resume()
            assert (await log.find(A)) is not None


async def test_followers_look_for_themselves_when_news_were_interrupted(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        async with opened(server) as one, opened(server) as two:
            lease = await one.create(A, "tok", b"")
            with two.news.subscribe(A) as news:
                server.kill()
                server.start()
                await one.append(lease, 0, content("1"))  # told while nobody listens, or after
                await news.wait()
            assert await texts(two) == ["1"]


async def test_an_outage_is_told_once_and_so_is_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headway.streams.redis_log._RECONNECT_S", 0)
    caplog.set_level(logging.INFO, "headway.streams.redis_log")
    with redis_server(tmp_path) as server:
        async with opened(server) as log:
            subscriptions: list[object] = []
            tried_often = asyncio.Event()
            connect = log._listener.pubsub

            def pubsub() -> object:
                subscriptions.append(connect())
                if len(subscriptions) == 5:
                    tried_often.set()
                return subscriptions[-1]

            monkeypatch.setattr(log._listener, "pubsub", pubsub)
            with log.news.subscribe(A) as news:
                server.kill()
                await tried_often.wait()
                server.start()
                await news.wait()
    told = [message.partition(":")[0] for message in caplog.messages]
    assert told == [
        "news of other gateways' streams are interrupted",
        "news of other gateways' streams come again",
    ]


async def test_nothing_is_left_of_streams_that_are_forgotten(tmp_path: Path) -> None:
    clock = WallClock()
    with redis_server(tmp_path) as server:
        async with opened(server, clock) as log:
            lease = await log.create(A, "tok", b"meta")
            await log.append(lease, 0, content("1", "2"), b"p")
            await log.ack(A, 1, 1)
            await log.remove(A)
            clock.ms += StreamLimits().remembered_ms
            await log.expire()
            assert await log._script._client.keys("*") == []


async def test_what_is_no_server_is_said_when_it_is_opened(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        server.kill()
        with pytest.raises(StreamLogUnavailable):
            await RedisLog.open(server.url, StreamLimits(), WallClock())
    with pytest.raises(ConfigError):
        await RedisLog.open("redis://host:port/0", StreamLimits(), WallClock())


async def test_a_server_that_tells_no_news_is_not_waited_for(tmp_path: Path) -> None:
    with (
        redis_server(tmp_path, "--rename-command", "SUBSCRIBE", "") as server,
        pytest.raises(ConfigError, match="does not let"),
    ):
        await asyncio.wait_for(RedisLog.open(server.url, StreamLimits(), WallClock()), 30)


async def test_names_of_streams_that_a_server_short_of_memory_evicted_hold_nobody_up(tmp_path: Path) -> None:
    clock, limits = WallClock(), StreamLimits(max_streams=4, settle_ms=1)
    names = [f"{n:032x}" for n in range(4)]
    with redis_server(tmp_path) as server:
        log = await RedisLog.open(server.url, limits, clock)
        try:
            for number, name in enumerate(names):
                lease = await log.create(name, "tok", b"")
                await log.append(lease, 0, content("1", "2"), end=None if number == 3 else "ended")
            for name in names:
                await log._script._client.delete(f"{PREFIX}stream:{name}")
            clock.ms += 1
            assert await log.expire() == 0  # it is crowded, and comes to an end
            clock.ms += limits.lease_ms
            for name in await log.orphans():
                assert await log.take_over(name) is None
            assert await log.orphans() == []
            assert await log._script._client.keys("*") == []
        finally:
            await log.close()


class Relay:
    """Stands before a server; `freeze`: what is connected then hears nothing any more, and nobody hears of it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._frozen: list[asyncio.Event] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frozen = asyncio.Event()
        self._frozen.append(frozen)
        there, to_there = await asyncio.open_connection("127.0.0.1", self._port)

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                if not frozen.is_set():
                    target.write(data)

        ways = [asyncio.ensure_future(pass_on(*way)) for way in ((reader, to_there), (there, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        writer.close()
        to_there.close()

    def freeze(self) -> None:
        for frozen in self._frozen:
            frozen.set()


async def test_a_connection_that_broke_without_a_word_is_not_listened_to_for_ever(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        relay = Relay(server.port)
        async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as listener, opened(server) as one:
            url = f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0"
            two = await RedisLog.open(url, StreamLimits(), WallClock(), quiet_s=0.02)
            try:
                lease = await one.create(A, "tok", b"")
                with two.news.subscribe(A) as news:
                    relay.freeze()
                    await one.append(lease, 0, content("1"))
                    await news.wait()
                assert await texts(two) == ["1"]
            finally:
                await two.close()


async def test_a_stream_that_redis_began_without_saying_so_is_not_gone_on_with(tmp_path: Path) -> None:
    clock = WallClock()
    with redis_server(tmp_path) as server:
        async with opened(server, clock, timeout_s=0.05) as log:
            server.pause()
            with pytest.raises(StreamLogUnavailable):
                await log.create(A, "tok", b"")
            server.resume()
            while (record := await log.find(A)) is None:  # it reads what it was sent in its own time
                pass
            assert record.state == "open"
            await log.expire()
            clock.ms += StreamLimits().lease_ms
            assert await log.orphans() == []
            assert await log.take_over(A) is None
            await log.expire()
            assert not log._doubtful


async def test_what_an_evicted_stream_kept_counts_no_longer_than_others_are_there(tmp_path: Path) -> None:
    clock = WallClock()
    with redis_server(tmp_path) as server:
        async with opened(server, clock) as log, Redis.from_url(server.url) as raw:
            for stream_id in (A, "b" * 32):
                await log.create(stream_id, "tok", b"meta", content("x"))
            await raw.delete(f"{PREFIX}stream:{A}", f"{PREFIX}events:{A}")
            clock.ms += StreamLimits().lease_ms
            for stream_id in await log.orphans():
                await log.take_over(stream_id)
                await log.remove(stream_id)
            clock.ms += StreamLimits().remembered_ms
            await log.expire()
            assert await raw.keys("*") == []
