import logging

import pytest

from headway.core.errors import EngineUnavailable
from headway.core.events import CallEnded, CallRefused, Event, FirstToken, RequestEnded, TokensArrived
from headway.core.messages import Finished, Usage
from headway.gateway.config import GatewayConfig
from support.gateway_app import service
from support.scripted_client import answering

pytestmark = pytest.mark.anyio
MS = 1_000_000


def access_lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "headway.access"]


async def test_one_access_line_per_request_with_its_id_and_tokens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    s = service(answering("ab", cached=1))
    async with s.chat() as exchange:
        await exchange.read_body()
    (line,) = access_lines(caplog)
    assert line.getMessage() == "POST /v1/chat/completions 200 0.0 ms"
    expected = {
        "request_id": exchange.headers["x-request-id"],
        "http": {"method": "POST", "path": "/v1/chat/completions", "status": 200, "duration_ms": 0.0},
        "model": "fake",
        "outcome": "stop",
        "prompt_tokens": 5,
        "cached_tokens": 1,
        "completion_tokens": 2,
    }
    assert {name: line.__dict__[name] for name in expected} == expected


async def test_a_client_that_left_is_logged_as_499(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    s = service()
    async with s.chat() as exchange:
        await s.engine.wait_requests(1)
        exchange.disconnect()
        await exchange.wait_ended()
    (line,) = access_lines(caplog)
    assert (line.__dict__["http"]["status"], line.__dict__["outcome"]) == (499, "cancelled")


async def test_a_refusal_is_logged_with_its_code_and_field_but_not_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with service().chat(response_format={"type": "secret"}) as exchange:
        await exchange.read_body()
    (line,) = access_lines(caplog)
    assert (line.__dict__["error"], line.__dict__["param"]) == ("invalid_request", "response_format")
    assert "secret" not in str(line.__dict__)


async def test_probes_are_logged_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    s = service()
    for path in ("/health", "/ready", "/v1/models"):
        async with s.get(path) as exchange:
            await exchange.read_body()
    assert [line.levelname for line in access_lines(caplog)] == ["DEBUG", "DEBUG", "INFO"]


async def test_request_ids_are_unguessable_and_never_repeat() -> None:
    s = service(answering("a"))
    ids = set()
    for _ in range(20):
        async with s.chat() as exchange:
            await exchange.read_body()
        ids.add(exchange.headers["x-request-id"])
    assert len(ids) == 20
    assert all(len(request_id) == 32 for request_id in ids)


async def test_events_tell_when_tokens_came_and_how_the_request_ended() -> None:
    s = service()
    async with s.chat(stream=True, n=2) as exchange:
        await s.engine.wait_requests(1)
        (request,) = s.engine.requests
        s.clock.advance(5 * MS)
        s.engine.emit(request, b"a")
        await exchange.read_event()
        s.clock.advance(3 * MS)
        s.engine.emit(request, b"bc")
        s.engine.emit(request, b"x", choice=1)
        for _ in range(4):
            await exchange.read_event()
        s.clock.advance(2 * MS)
        s.engine.finish(request)
        while await exchange.read_event() is not None:
            pass
    request_id = exchange.headers["x-request-id"]
    expected: list[Event] = [
        FirstToken(request_id=request_id, model="fake", ttft_ns=5 * MS, endpoint="/v1/chat/completions"),
        TokensArrived(request_id=request_id, model="fake", num_tokens=2, interval_ns=3 * MS),
    ]
    assert s.events[:-2] == expected
    end, call = s.events[-2:]
    assert isinstance(end, RequestEnded)
    assert isinstance(call, CallEnded)
    assert call.request is end
    assert (call.request_id, call.status, call.duration_ns) == (request_id, 200, 10 * MS)
    assert (end.outcome, end.status, end.ttft_ns, end.e2e_ns) == ("stop", 200, 5 * MS, 10 * MS)
    assert end.tpot_ns == 3 * MS // 2  # three tokens of the longest choice: two intervals in 3 ms
    assert end.queue_ns == 2 * MS
    assert end.usage is not None
    assert end.usage.completion_tokens == 4


async def test_a_hook_that_fails_does_not_fail_the_request(caplog: pytest.LogCaptureFixture) -> None:
    s = service(answering("a"))

    def broken(event: Event) -> None:
        raise RuntimeError(type(event).__name__)

    s.gateway.hook = broken
    async with s.chat() as exchange:
        assert await exchange.read_status() == 200
    assert "a hook failed" in caplog.text


def calls(events: list[Event]) -> list[CallEnded]:
    return [event for event in events if isinstance(event, CallEnded)]


async def test_every_call_ends_in_one_event_under_its_route_and_probes_in_none() -> None:
    s = service(answering("a"))
    for path in ("/health", "/ready", "/metrics", "/v1/models", "/v1/models/a/b?c=d", "/secret/path"):
        async with s.get(path) as exchange:
            await exchange.read_body()
    async with s.chat() as exchange:
        await exchange.read_body()
    async with s.get("/v1/chat/completions") as exchange:
        await exchange.read_body()
    assert [(call.method, call.endpoint, call.status, call.error_code) for call in calls(s.events)] == [
        ("GET", "/v1/models", 200, None),
        ("GET", "/v1/models/{name:path}", 404, "model_not_found"),
        ("GET", "", 404, None),
        ("POST", "/v1/chat/completions", 200, None),
        ("GET", "/v1/chat/completions", 405, None),
    ]


async def test_a_refusal_is_told_with_its_reason_and_a_mistake_is_none() -> None:
    s = service()
    s.engine.refuse = EngineUnavailable("wait", retry_after_s=1)
    async with s.chat() as exchange:
        assert await exchange.read_status() == 503
    async with s.chat(max_tokens=-1) as exchange:
        assert await exchange.read_status() == 400
    refused = [event for event in s.events if isinstance(event, CallRefused)]
    assert refused == [CallRefused(reason="engine_unavailable", status=503)]
    assert [call.error_code for call in calls(s.events)] == ["engine_unavailable", "invalid_request"]


async def test_a_client_that_left_ends_its_call_with_499() -> None:
    s = service()
    async with s.chat() as exchange:
        await s.engine.wait_requests(1)
        exchange.disconnect()
        await exchange.wait_ended()
    assert [call.status for call in calls(s.events)] == [499]


async def test_stages_are_told_and_logged_and_add_up_to_the_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    s = service()
    async with s.chat(stream=True) as exchange:
        await s.engine.wait_requests(1)
        (request,) = s.engine.requests
        start_ns = s.clock.now_ns()
        s.clock.advance(9 * MS)
        s.engine.emit(request, b"a")
        await exchange.read_event()
        s.clock.advance(11 * MS)
        finished = Finished(
            request_id=request.request_id,
            usage=Usage(prompt_tokens=1, completion_tokens=1, cached_tokens=0),
            queued_ns=start_ns + MS,
            first_scheduled_ns=start_ns + 3 * MS,
            first_token_ns=start_ns + 8 * MS,
            finished_ns=start_ns + 19 * MS,
        )
        s.engine.emit_end(request, finished)
        while await exchange.read_event() is not None:
            pass
    expected = {"parse": 0.0, "admit": 0.0, "queue": 3.0, "prefill": 5.0, "decode": 11.0, "send": 1.0}
    (line,) = access_lines(caplog)
    assert line.__dict__["stages_ms"] == expected
    assert sum(expected.values()) == line.__dict__["http"]["duration_ms"]
    (end,) = s.ended
    assert dict(end.stages) == {stage: took_ms * MS for stage, took_ms in expected.items()}
    assert sum(took_ns for _, took_ns in end.stages) == end.e2e_ns


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_callers_trace_counts_where_headers_are_trusted(
    trusted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    s = service(config=GatewayConfig(trust_headers=trusted))
    async with s.post("/v1/completions", {"prompt": 1}, {"traceparent": PARENT}) as exchange:
        await exchange.read_body()
    (call,) = calls(s.events)
    (line,) = access_lines(caplog)
    if trusted:
        assert call.trace_parent is not None
        assert call.trace_parent.trace_id == int(PARENT[3:35], 16)
        assert line.__dict__["trace_id"] == PARENT[3:35]
    else:
        assert call.trace_parent is None
        assert "trace_id" not in line.__dict__


async def test_a_hook_that_fails_does_not_fail_a_call_without_a_model() -> None:
    s = service()

    def broken(event: Event) -> None:
        raise RuntimeError(type(event).__name__)

    s.gateway.hook = broken
    async with s.get("/v1/models") as exchange:
        assert await exchange.read_status() == 200
