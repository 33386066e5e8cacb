import logging

import pytest

from headway.core.events import Event, FirstToken, RequestEnded, TokensArrived
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
        FirstToken(request_id=request_id, model="fake", ttft_ns=5 * MS),
        TokensArrived(request_id=request_id, model="fake", num_tokens=2, interval_ns=3 * MS),
    ]
    assert s.events[:-1] == expected
    end = s.events[-1]
    assert isinstance(end, RequestEnded)
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
