"""Resumable streams over HTTP: what a client reads in pieces is what an undisturbed client reads."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from headway.core.clock import ManualClock
from headway.core.errors import QueueFull
from headway.core.events import StreamResumed
from headway.core.messages import ErrorInfo
from headway.gateway.stream_run import StreamTerms
from headway.gateway.streams import Streams
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from support.asgi_client import Exchange
from support.gateway_app import MODEL, Service, service
from support.stream_logs import KINDS, open_gateways

pytestmark = pytest.mark.anyio

TEXT = b"hello, you"


def resumable(
    grace_s: float = 1000.0,
    ping_s: float = 1000.0,
    patience_ns: int = 10**12,
    limits: StreamLimits | None = None,
) -> Service:
    log = MemoryLog(limits or StreamLimits(), lambda: 1_800_000_000_000)
    streams = Streams(
        log, ManualClock(), StreamTerms(grace_s=grace_s, patience_ns=patience_ns), ping_s=ping_s
    )
    return service(streams=streams)


def ask(s: Service, headers: Mapping[str, str] | None = None, **fields: object) -> Exchange:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True, **fields}
    return s.post("/v1/chat/completions", body, {"x-headway-resumable": "1", **(headers or {})})


def emit(s: Service, text: bytes) -> None:
    for byte in text:
        s.engine.emit(s.engine.requests[0], [byte])


async def began(s: Service, exchange: Exchange) -> str:
    """Have three tokens of the answer come, read the first event; return the stream's path."""
    await s.engine.wait_requests(1)
    emit(s, TEXT[:3])
    await exchange.read_numbered()
    return f"/v1/streams/{exchange.headers['x-headway-stream']}"


def resumes(s: Service) -> list[StreamResumed]:
    """What listeners heard of clients that came back."""
    return [event for event in s.events if isinstance(event, StreamResumed)]


def text_of(events: list[tuple[str, str]]) -> str:
    """Return the text of chat chunks; the last event must be the end."""
    *chunks, (_, end) = events
    assert end == "[DONE]"
    deltas = [choice["delta"] for _, data in chunks for choice in json.loads(data)["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def numbers(events: list[tuple[str, str]]) -> list[int]:
    return [int(name.rpartition(".")[2]) for name, _ in events]


async def settled(s: Service) -> None:
    """Wait until nothing is active any more."""
    await s.gateway.wait_idle()
    assert s.engine.num_live == 0


async def test_a_resumable_stream_says_the_same_as_a_plain_one_with_numbers() -> None:
    s = resumable()
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, TEXT)
        s.engine.finish(s.engine.requests[0])
        events = await exchange.read_all_numbered()
        stream = exchange.headers["x-headway-stream"]
    plain = service()
    async with plain.chat(stream=True) as exchange:
        await plain.engine.wait_requests(1)
        emit(plain, TEXT)
        plain.engine.finish(plain.engine.requests[0])
        expected = (await exchange.read_body()).decode().split("\n\n")[:-1]
    with_its_id = [data.replace(plain.ended[0].request_id, s.ended[0].request_id) for data in expected]
    assert [f"data: {data}" for _, data in events] == with_its_id
    assert [name for name, _ in events] == [f"{stream}.1.{seq}" for seq in range(1, len(events) + 1)]
    await settled(s)
    assert [event.outcome for event in s.ended] == ["stop"]


@pytest.mark.parametrize("how", ["header", "query"])
async def test_nothing_is_lost_or_twice_over_two_drops(how: str) -> None:
    s = resumable()
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, TEXT[:3])
        events = [event for _ in range(4) if (event := await exchange.read_numbered())]
    emit(s, TEXT[3:6])  # while nobody reads
    stream = exchange.headers["x-headway-stream"]

    def again(after: str) -> Exchange:
        if how == "header":
            return s.get(f"/v1/streams/{stream}", {"last-event-id": after})
        return s.get(f"/v1/streams/{stream}?after={after.rpartition('.')[2]}")

    async with again(events[-1][0]):
        pass  # dropped before any event: the cursor stays
    async with again(events[-1][0]) as exchange:
        events += [event for _ in range(2) if (event := await exchange.read_numbered())]
        emit(s, TEXT[6:])
        s.engine.finish(s.engine.requests[0])
        events += await exchange.read_all_numbered()
    assert numbers(events) == list(range(1, len(events) + 1))
    assert text_of(events) == TEXT.decode()
    await settled(s)
    async with again(events[-1][0]) as exchange:
        assert await exchange.read_status() == 204
    async with s.get(f"/v1/streams/{stream}") as exchange:
        assert await exchange.read_all_numbered() == events
    assert [event.replayed for event in resumes(s)] == [3, 3, 0, len(events)]
    assert not any(event.resync for event in resumes(s))


async def test_two_read_at_once() -> None:
    s = resumable()
    async with ask(s) as first:
        await s.engine.wait_requests(1)
        emit(s, TEXT[:1])
        await first.read_numbered()
        async with s.get(f"/v1/streams/{first.headers['x-headway-stream']}") as second:
            await second.read_numbered()
            emit(s, TEXT[1:])
            s.engine.finish(s.engine.requests[0])
            assert await first.read_all_numbered() == await second.read_all_numbered()


async def test_what_was_acknowledged_is_gone_and_asking_for_it_is_told() -> None:
    s = resumable()
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, TEXT)
        for _ in range(5):
            await exchange.read_numbered()
        path = f"/v1/streams/{exchange.headers['x-headway-stream']}"
        async with s.post(f"{path}/ack", {"seq": 4}) as ack:
            assert await ack.read_status() == 204
        async with s.get(f"{path}?after=3") as late:
            assert await late.read_status() == 410
            assert (await late.read_json())["error"]["code"] == "resync_required"  # type: ignore[index]
        assert resumes(s) == [StreamResumed(resync=True)]
        async with s.get(f"{path}?after=4") as again:
            assert numbers([event for event in [await again.read_numbered()] if event]) == [5]
        async with s.post(f"{path}/ack", {"seq": 400}) as ack:
            assert await ack.read_status() == 400


@pytest.mark.parametrize("stream", ["0" * 32, "x", "a" * 300, "..%2f"])
async def test_a_stream_that_is_not_there_is_not_found(stream: str) -> None:
    s = resumable()
    for exchange in (s.get(f"/v1/streams/{stream}"), s.delete(f"/v1/streams/{stream}")):
        async with exchange:
            assert await exchange.read_status() == 404


async def test_without_a_reader_a_stream_ends_after_the_time_of_grace() -> None:
    s = resumable(grace_s=0)
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, TEXT[:3])
        events = [event for _ in range(4) if (event := await exchange.read_numbered())]
    await settled(s)
    assert [event.outcome for event in s.ended] == ["cancelled"]
    stream = exchange.headers["x-headway-stream"]
    async with s.get(f"/v1/streams/{stream}", {"last-event-id": events[-1][0]}) as exchange:
        (_, data), *rest = await exchange.read_all_numbered()
    assert json.loads(data)["error"]["code"] == "stream_unread"
    assert rest == []


async def test_a_client_that_leaves_before_the_stream_has_a_name_ends_it() -> None:
    s = resumable()
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        exchange.disconnect()
        await exchange.wait_ended()
    await settled(s)
    assert [event.outcome for event in s.ended] == ["cancelled"]


async def test_a_stream_that_is_deleted_is_cancelled_and_gone() -> None:
    s = resumable()
    async with ask(s) as exchange:
        path = await began(s, exchange)
        async with s.delete(path) as deleted:
            assert await deleted.read_status() == 204
        rest = (await exchange.read_body()).decode()
        assert "resync_required" in rest.split("\n\n")[-2]
        async with s.get(path) as late:
            assert await late.read_status() == 410
    await settled(s)


async def test_a_refusal_keeps_its_status_and_leaves_no_stream() -> None:
    s = resumable()
    s.engine.refuse = QueueFull("Full.")
    async with ask(s) as exchange:
        assert await exchange.read_status() == 503
        assert "x-headway-stream" not in exchange.headers
    await settled(s)
    assert [event.outcome for event in s.ended] == ["refused"]


async def test_what_the_engine_says_before_the_first_token_keeps_its_status() -> None:
    s = resumable()
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        s.engine.fail(
            s.engine.requests[0], ErrorInfo(code="deadline_unmet", message="Late.", retry_after_s=7)
        )
        assert await exchange.read_status() == 503
        assert exchange.headers["retry-after"] == "7"
    await settled(s)


async def test_an_error_in_the_middle_is_the_last_event_for_everybody() -> None:
    s = resumable()
    async with ask(s) as exchange:
        await began(s, exchange)
        s.engine.fail(s.engine.requests[0], ErrorInfo(code="engine_died", message="Gone."))
        events = await exchange.read_all_numbered()
    assert json.loads(events[-1][1])["error"]["code"] == "engine_died"
    async with s.get(f"/v1/streams/{exchange.headers['x-headway-stream']}") as again:
        assert (await again.read_all_numbered())[1:] == events
    await settled(s)
    assert [event.outcome for event in s.ended] == ["error"]


def ask_responses(s: Service) -> Exchange:
    return s.post(
        "/v1/responses", {"model": MODEL, "input": "hi", "stream": True}, {"x-headway-resumable": "1"}
    )


async def test_a_response_that_fails_before_it_began_begins_all_the_same() -> None:
    s = resumable(ping_s=0.001)
    async with ask_responses(s) as exchange:
        await s.engine.wait_requests(1)
        assert await exchange.read_status() == 200  # queued for long, it has a name
        s.engine.fail(s.engine.requests[0], ErrorInfo(code="deadline_unmet", message="Late."))
        types = [json.loads(data)["type"] for _, data in await exchange.read_all_numbered()]
    assert types == ["response.created", "response.in_progress", "response.failed"]
    await settled(s)


async def test_what_cuts_off_a_reader_has_the_shape_of_the_api_that_was_asked() -> None:
    s = resumable()
    body = {
        "model": MODEL,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
    }
    async with s.post("/v1/messages", body, {"x-headway-resumable": "1"}) as exchange:
        path = await began(s, exchange)
        async with s.get(path) as again:
            assert await again.read_status() == 200
            async with s.delete(path) as deleted:
                assert await deleted.read_status() == 204
            last = (await again.read_body()).decode().split("\n\n")[-2]
    name, _, data = last.partition("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["type"] == "error"
    await settled(s)


async def test_a_queued_stream_is_named_and_kept_alive_with_comments() -> None:
    s = resumable(ping_s=0.001)
    async with ask(s) as exchange:
        assert await exchange.read_status() == 200
        while b": ping\n: ping\n" not in exchange.received:
            await exchange.wait_bytes()
        emit(s, TEXT)
        s.engine.finish(s.engine.requests[0])
        assert text_of(await exchange.read_all_numbered()) == TEXT.decode()


async def test_a_log_that_is_full_ends_the_stream_with_an_error() -> None:
    s = resumable(limits=StreamLimits(max_events=4), patience_ns=0)
    async with ask(s) as exchange:
        await s.engine.wait_requests(1)
        emit(s, TEXT)
        events = await exchange.read_all_numbered()
    assert json.loads(events[-1][1])["error"]["code"] == "stream_unread"
    await settled(s)


def test_what_the_guide_says_of_time_is_what_there_is() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()
    assert StreamTerms().grace_s == 30
    assert "A stream waits 30 s for a client that is gone" in guide
    assert Streams(MemoryLog(StreamLimits(), lambda: 0), ManualClock()).ping_s == 10
    assert "The comment every 10 s" in guide


@pytest.mark.parametrize("value", ["2", "yes", ""])
async def test_a_wish_that_is_malformed_is_refused(value: str) -> None:
    s = resumable()
    async with ask(s, {"x-headway-resumable": value}) as exchange:
        assert await exchange.read_status() == 400


async def test_shutting_down_cuts_streams_off() -> None:
    s = resumable()
    async with ask(s) as exchange:
        await began(s, exchange)
        assert s.gateway.streams is not None
        await s.gateway.streams.close()
        rest = (await exchange.read_body()).decode()
    assert json.loads(rest.split("data: ")[-1])["error"]["code"] == "draining"
    await settled(s)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_access_line_tells_how_a_stream_ended_that_was_read_to_its_end(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headway.access")
    async with open_gateways(kind, tmp_path, StreamLimits()) as gateways:
        s = service(streams=Streams(gateways.one, ManualClock()))
        async with ask(s) as exchange:
            await s.engine.wait_requests(1)
            emit(s, TEXT)
            s.engine.finish(s.engine.requests[0])
            await exchange.read_all_numbered()
            await exchange.wait_ended()
        (line,) = (each.__dict__ for each in caplog.records if each.name == "headway.access")
    assert (line["outcome"], line["completion_tokens"]) == ("stop", len(TEXT))
