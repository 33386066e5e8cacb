"""How a gateway keeps house: what waits, what another gateway took and lost, what goes wrong."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from anyio.lowlevel import checkpoint

from headway.core.clock import NS_PER_S, ManualClock
from headway.core.errors import Draining, EngineDied, StreamLogUnavailable
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.gateway import streams as module
from headway.gateway.answer import AnswerHead
from headway.gateway.chat import ChatAnswer
from headway.gateway.choices import Choices
from headway.gateway.generation import Generation
from headway.gateway.request_record import RequestRecord
from headway.gateway.streams import Begun, Streams
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from headway.streams.record import Entry, Lease, Recovery
from support.asgi_client import Exchange
from support.byte_text import ByteTokenizer
from support.gateway_app import MODEL, Service, service
from support.stream_logs import WallClock

pytestmark = pytest.mark.anyio

LEASE_MS = StreamLimits().lease_ms


@pytest.fixture(autouse=True)
def always_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOUSEKEEPING_S", 0.0)


def serving(limits: StreamLimits | None = None, clock: WallClock | None = None) -> tuple[Service, Streams]:
    log = MemoryLog(limits or StreamLimits(), clock or WallClock())
    streams = Streams(log, ManualClock(), ping_s=1000.0)
    return service(streams=streams), streams


def ask(s: Service) -> Exchange:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    return s.post("/v1/chat/completions", body, {"x-headway-resumable": "1"})


def emit(s: Service, number: int, text: bytes) -> None:
    for byte in text:
        s.engine.emit(s.engine.requests[number], [byte])


async def settle() -> None:
    for _ in range(100):
        await checkpoint()


async def nobody(recovery: Recovery) -> Begun:
    del recovery
    raise EngineDied("Nobody goes on here.")


def begun(s: Service) -> Begun:
    """What is left of a stream that another process began: at most nine tokens."""
    record = RequestRecord(
        request_id="again",
        model=MODEL,
        service_class="normal",
        arrival_ns=0,
        clock=ManualClock(),
        hook=None,
    )
    request = Request(request_id="again", token_ids=(1,), sampling=SamplingParams(seed=1), max_tokens=9)
    choices = Choices([request], s.gateway.models[MODEL].text_maker(()))
    head = AnswerHead(
        id="x", created_s=0, model=MODEL, system_fingerprint="f", include_usage=False, num_prompt_tokens=1
    )
    answer = ChatAnswer(head, ByteTokenizer().token_bytes, logprobs=False)
    return Begun(Generation(engine=s.engine, choices=choices, record=record, survives=True), answer, record)


class Unwritable(MemoryLog):
    """Gives leases and takes no event, as on a full disk."""

    async def append(self, *_: object, **__: object) -> int | None:
        raise StreamLogUnavailable("no space left")


async def last_seq(streams: Streams, stream_id: str) -> int:
    record = await streams.log.find(stream_id)
    assert record is not None
    return record.last_seq


async def test_room_that_another_stream_leaves_is_noticed_by_who_waits_for_it() -> None:
    s, streams = serving(StreamLimits(max_total_events=8))
    streams.begin(nobody)
    async with ask(s) as first:
        await s.engine.wait_requests(1)
        emit(s, 0, b"abcd")
        for _ in range(5):  # a role, and four letters
            await first.read_numbered()
        async with ask(s) as second:
            await s.engine.wait_requests(2)
            emit(s, 1, b"abcd")
            await second.read_numbered()
            await settle()
            assert await last_seq(streams, stream_of(second)) == 3
            async with s.delete(f"/v1/streams/{stream_of(first)}") as deleted:
                assert await deleted.read_status() == 204
            await settle()
            assert await last_seq(streams, stream_of(second)) == 5
            s.engine.finish(s.engine.requests[1])
            assert (await second.read_all_numbered())[-1][1] == "[DONE]"
    await streams.close()


async def test_a_stream_that_was_lost_and_came_back_is_still_known_when_its_first_run_ends() -> None:
    clock = WallClock()
    s, streams = serving(clock=clock)

    async def go_on(recovery: Recovery) -> Begun:
        del recovery
        return begun(s)

    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, 0, b"a")
        await exchange.read_numbered()
        stream_id = stream_of(exchange)
        first = streams.run_of(stream_id)
        clock.ms += LEASE_MS
        assert await streams.log.take_over(stream_id) is not None  # by another gateway, which ends
        clock.ms += LEASE_MS
        streams.begin(go_on)
        await s.engine.wait_requests(2)
        second = streams.run_of(stream_id)
        assert second is not first
        await settle()  # the first one hears that it lost its lease, and ends
        assert s.engine.num_live == 1
        assert streams.run_of(stream_id) is second
        emit(s, 1, b"b")
        s.engine.finish(s.engine.requests[1])
        texts = [text for _, text in await exchange.read_all_numbered()]
        assert any('"b"' in text for text in texts)
        await settle()
        assert streams.run_of(stream_id) is None
    await streams.close()


async def test_a_stream_that_another_gateway_deleted_frees_the_engine_before_its_next_token() -> None:
    s, streams = serving()
    streams.begin(nobody)
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, 0, b"a")
        await exchange.read_numbered()
        await streams.log.remove(stream_of(exchange))
        await settle()
        assert s.engine.num_live == 0
    assert [event.outcome for event in s.ended] == ["cancelled"]
    await streams.close()


class Hesitant(MemoryLog):
    """Begins a stream, and says so later."""

    def __init__(self) -> None:
        super().__init__(StreamLimits(), WallClock())
        self.began, self.says_so = asyncio.Event(), asyncio.Event()

    async def create(
        self, stream_id: str, owner: str, meta: bytes, entries: Sequence[Entry] = (), progress: bytes = b""
    ) -> Lease:
        lease = await super().create(stream_id, owner, meta, entries, progress)
        self.stream_id = stream_id
        self.began.set()
        await self.says_so.wait()
        return lease


async def test_a_client_that_leaves_while_its_stream_is_begun_leaves_none_that_nobody_knows_of() -> None:
    log = Hesitant()
    streams = Streams(log, ManualClock(), ping_s=0.0)
    s = service(streams=streams)
    async with ask(s) as exchange:
        await log.began.wait()  # queued for long, it is given a name
        exchange.disconnect()
        await exchange.wait_ended()
        await settle()
        log.says_so.set()
        await settle()
    record = await log.find(log.stream_id)
    assert record is not None
    assert (record.state, s.engine.num_live, s.gateway.num_active) == ("failed", 0, 0)


async def orphans(streams: Streams, clock: WallClock) -> list[str]:
    names = [f"{n:032x}" for n in range(2)]
    for name in names:
        await streams.log.create(name, "", b"")
        clock.ms += 1
    clock.ms += LEASE_MS
    return names


async def test_who_waits_for_an_engine_holds_up_nobody_and_is_not_asked_again() -> None:
    clock = WallClock()
    _, streams = serving(clock=clock)
    names = await orphans(streams, clock)
    asked: list[str] = []

    async def waits(recovery: Recovery) -> Begun:
        asked.append(recovery.record.stream_id)
        never: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()
        return await never

    streams.begin(waits)
    await settle()
    assert asked == names
    clock.ms += LEASE_MS
    await settle()
    assert asked == names
    await streams.close()


async def test_a_stream_that_cannot_go_on_now_is_left_to_the_next_who_can() -> None:
    clock = WallClock()
    _, streams = serving(clock=clock)
    first, second = await orphans(streams, clock)
    asked: list[str] = []

    async def cannot(recovery: Recovery) -> Begun:
        asked.append(recovery.record.stream_id)
        if recovery.record.stream_id == first:
            raise Draining("The server is shutting down.")
        raise EngineDied("It is another model.")

    streams.begin(cannot)
    await settle()
    records = [await streams.log.find(name) for name in (first, second)]
    assert [record.state for record in records if record] == ["open", "failed"]
    clock.ms += LEASE_MS
    await settle()
    assert asked == [first, second, first]
    await streams.close()


async def test_a_stream_that_cannot_be_written_is_tried_ever_more_rarely() -> None:
    clock, gateway_clock = WallClock(), ManualClock()
    log = Unwritable(StreamLimits(), clock)
    streams = Streams(log, gateway_clock)
    s = service(streams=streams)
    (name, _) = await orphans(streams, clock)
    tried_s: list[int] = []

    async def go_on(recovery: Recovery) -> Begun:
        if recovery.record.stream_id != name:
            raise Draining("Not this one.")
        tried_s.append(gateway_clock.now_ns() // NS_PER_S)
        return begun(s)

    streams.begin(go_on)
    num_given = 0
    for _ in range(400):
        await settle()
        for request in s.engine.requests[num_given:]:
            s.engine.emit(request, b"a")
        num_given = len(s.engine.requests)
        await settle()
        clock.ms += 5_000
        gateway_clock.advance(5 * NS_PER_S)
    waits = [after - before for before, after in pairwise(tried_s)]
    assert waits[:2] == [15, 30]  # one lease; then at least as long as was waited for
    assert all(later >= earlier for earlier, later in pairwise(waits))
    assert 300 <= waits[-1] <= 620
    await streams.close()


@pytest.mark.parametrize(
    ("endpoint", "name", "code"),
    [
        ("/v1/messages", "error", "api_error"),
        ("/v1/chat/completions", None, "resync_required"),
        ("", None, "resync_required"),
    ],
)
async def test_a_stream_that_cannot_go_on_ends_in_the_words_of_its_api(
    endpoint: str, name: str | None, code: str
) -> None:
    clock = WallClock()
    _, streams = serving(clock=clock)
    meta = msgspec.msgpack.encode({"endpoint": endpoint}) if endpoint else b"of another version"
    stream_id = f"{7:032x}"
    await streams.log.create(stream_id, "", meta)
    clock.ms += LEASE_MS
    streams.begin(nobody)
    await settle()
    page = await streams.log.read(stream_id, 1, 0, 9)
    (event,) = page.events
    error = msgspec.json.decode(event.entry.data)["error"]
    assert (event.entry.name, error.get("code", error["type"])) == (name, code)
    await streams.close()


async def test_what_goes_wrong_once_does_not_end_the_housekeeping(monkeypatch: pytest.MonkeyPatch) -> None:
    _, streams = serving()
    expire, calls = streams.log.expire, 0

    async def fails_first() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        return await expire()

    monkeypatch.setattr(streams.log, "expire", fails_first)
    streams.begin(nobody)
    await settle()
    assert calls > 1
    await streams.close()


def stream_of(exchange: Exchange) -> str:
    return exchange.headers["x-headway-stream"]


class Faulty(MemoryLog):
    """Takes what a stream begins with, and then has a bug."""

    async def append(self, *_: object, **__: object) -> int | None:
        raise KeyError("a bug")


async def test_a_bug_of_the_log_is_the_last_event_and_nobody_waits_for_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = service(streams=Streams(Faulty(StreamLimits(), WallClock()), ManualClock(), ping_s=1000.0))
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, 0, b"ab")
        assert await exchange.read_numbered() is not None
        assert b"internal_error" in await exchange.read_body()
    assert (s.engine.num_live, s.gateway.num_active) == (0, 0)
    assert [event.outcome for event in s.ended] == ["error"]
    assert any(record.exc_info for record in caplog.records)


async def test_who_waits_for_a_name_is_told_that_the_server_shuts_down() -> None:
    log = Hesitant()
    streams = Streams(log, ManualClock(), ping_s=1000.0)
    s = service(streams=streams)
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, 0, b"a")
        await log.began.wait()
        await streams.close()
        assert await exchange.read_status() == 503
        assert (await exchange.read_json())["error"]["code"] == "draining"  # type: ignore[index]
        log.says_so.set()
        await settle()
    assert (s.engine.num_live, s.gateway.num_active) == (0, 0)
