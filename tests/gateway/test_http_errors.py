import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from headway.core.clock import ManualClock
from headway.core.errors import DeadlineUnmet, Draining, EngineUnavailable, QueueFull
from headway.core.events import EngineState
from headway.core.messages import ErrorInfo
from headway.engine.client import RequestEvent
from headway.gateway.config import GatewayConfig
from headway.gateway.streams import Streams
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from support.asgi_client import Exchange
from support.byte_text import ByteTokenizer
from support.gateway_app import Service, service
from support.scripted_client import answering

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"


async def error_of(exchange: Exchange) -> tuple[int, dict[str, str | None]]:
    async with exchange:
        status = await exchange.read_status()
        assert exchange.headers["content-type"] == "application/json"
        assert exchange.headers["x-request-id"]
        body = msgspec.json.decode(await exchange.read_body())
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"].endswith(".")
    return status, body["error"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_mistake_is_named(stream: bool) -> None:
    status, error = await error_of(service().chat(temperature=3, stream=stream))
    assert status == 400
    assert error == {
        "message": "`temperature` must be between 0 and 2; it is 3.",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": "invalid_request",
    }


async def test_a_body_that_is_not_json() -> None:
    status, error = await error_of(service().post(CHAT, b"{"))
    assert (status, error["code"]) == (400, "invalid_request")


async def test_an_unknown_model() -> None:
    s = service()
    status, error = await error_of(s.chat(model="gpt-9"))
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert s.ended == []


async def test_no_model_means_the_only_one() -> None:
    s = service(answering("x"))
    async with s.chat(model=None) as exchange:
        assert msgspec.json.decode(await exchange.read_body())["model"] == "fake"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/nothing"), ("POST", "/"), ("GET", "/v1/models/x/y")]
)
async def test_no_such_address(method: str, path: str) -> None:
    status, error = await error_of(Exchange(service().app, method, path))
    assert (status, error["type"]) == (404, "invalid_request_error")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", CHAT), ("DELETE", "/v1/completions"), ("POST", "/health")]
)
async def test_the_wrong_method(method: str, path: str) -> None:
    exchange = Exchange(service().app, method, path)
    status, error = await error_of(exchange)
    assert status == 405
    assert exchange.headers["allow"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/messages/nothing", 404, "not_found_error"),
        ("GET", "/v1/messages", 405, "invalid_request_error"),
    ],
)
async def test_an_address_under_anthropics_is_wrong_in_its_words(
    method: str, path: str, status: int, kind: str
) -> None:
    async with Exchange(service().app, method, path) as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    assert (exchange.status, body["type"], body["error"]["type"]) == (status, "error", kind)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        (f"{CHAT}/", CHAT),
        ("/v1/sessions", "/v1/sessions/"),
        ("/health//?a=%20&b", "/health?a=%20&b"),
        ("/v1/streams/ü /", "/v1/streams/%C3%BC%20"),
        ("//health/", None),
        ("/nothing/", None),
        ("/", None),
    ],
)
async def test_a_slash_at_the_end_leads_to_the_address_that_was_meant_however_the_host_is_known(
    asked: str, meant: str | None
) -> None:
    log = MemoryLog(StreamLimits(), lambda: 1)
    s = service(streams=Streams(log, ManualClock()))
    async with Exchange(s.app, "POST", asked, headers={"host": "behind.a.proxy"}) as exchange:
        await exchange.read_body()
    assert exchange.headers.get("location") == meant
    assert (exchange.status == 307) is (meant is not None)


@pytest.mark.parametrize("stream", [False, True])
async def test_prompt_and_limit_beyond_the_context_are_refused_with_both_lengths(stream: bool) -> None:
    s = service()
    status, error = await error_of(s.chat(max_tokens=60, stream=stream))
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "max_tokens")
    assert "prompt has 5" in str(error["message"])
    assert "asks for 60" in str(error["message"])
    assert s.engine.requests == []
    assert s.ended[0].outcome == "refused"


async def test_a_prompt_beyond_the_context_is_refused_before_it_is_encoded() -> None:
    status, error = await error_of(service().complete(prompt="x" * 64))
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "prompt")


async def test_what_the_template_refuses_is_the_callers_mistake() -> None:
    s = service()
    status, error = await error_of(s.chat(messages=[{"role": "user", "content": "refuse me"}]))
    assert (status, error["param"]) == (400, "messages")


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_beyond_the_limit_is_refused_without_reading_it_all(declared: bool) -> None:
    s = service(config=GatewayConfig(max_body_bytes=100))
    headers = {"content-length": "101"} if declared else {}
    exchange = Exchange(s.app, "POST", CHAT, b"" if declared else b"x" * 60, headers, complete=False)
    if not declared:
        exchange.send(b"x" * 41, more=True)
    status, error = await error_of(exchange)
    assert (status, error["code"]) == (413, "payload_too_large")
    assert exchange.headers["connection"] == "close"


async def test_a_body_of_exactly_the_limit_in_pieces_is_taken() -> None:
    body = msgspec.json.encode({"messages": [{"role": "user", "content": "hi"}]})
    s = service(answering("x"), config=GatewayConfig(max_body_bytes=len(body)))
    async with s.post(CHAT, body[:10], complete=False) as exchange:
        exchange.send(body[10:])
        assert await exchange.read_status() == 200


async def test_a_body_that_comes_too_slowly_is_refused_and_the_connection_closed() -> None:
    s = service(config=GatewayConfig(body_grace_s=0.01))
    async with s.post(CHAT, b"{", complete=False) as exchange:
        error = msgspec.json.decode(await exchange.read_body())["error"]
        assert (exchange.status, error["code"]) == (408, "request_timeout")
        assert exchange.headers["connection"] == "close"


async def test_a_body_that_comes_fast_enough_may_take_longer_than_the_grace() -> None:
    s = service(answering("x"), config=GatewayConfig(body_grace_s=0.01, min_body_bytes_per_s=1))
    body = msgspec.json.encode({"model": "fake", "messages": [{"role": "user", "content": "hi"}]})
    async with s.post(CHAT, body[:-1], complete=False) as exchange:  # grants as many seconds as bytes
        asyncio.get_running_loop().call_later(0.05, exchange.send, body[-1:])
        assert await exchange.read_status() == 200


@pytest.mark.parametrize("state", ["starting", "restarting", "draining", "closed"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_takes_nothing_is_a_503(state: EngineState, stream: bool) -> None:
    s = service()
    s.engine.state = state
    exchange = s.chat(stream=stream)
    status, error = await error_of(exchange)
    assert status == 503
    assert error["code"] == ("draining" if state == "draining" else "engine_unavailable")
    assert ("retry-after" in exchange.headers) == (state != "closed")
    assert (s.ended[0].outcome, s.ended[0].status) == ("refused", 503)


async def test_draining_refuses_new_requests_and_finishes_running_ones() -> None:
    s = service()
    async with s.chat(stream=True) as running:
        await s.engine.wait_requests(1)
        s.gateway.drain_nowait()
        exchange = s.chat()
        status, error = await error_of(exchange)
        assert (status, error["code"], exchange.headers["retry-after"]) == (503, "draining", "1")
        assert s.gateway.num_active == 1
        s.engine.emit(s.engine.requests[0], b"a")
        s.engine.finish(s.engine.requests[0])
        while (event := await running.read_event()) is not None:
            last = event
    assert last == "[DONE]"
    await s.gateway.wait_idle()
    assert s.gateway.num_active == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (QueueFull("Full.", retry_after_s=7), "queue_full"),
        (DeadlineUnmet("Too late.", retry_after_s=6.2), "deadline_unmet"),
        (Draining("Bye.", retry_after_s=7), "draining"),
        (EngineUnavailable("Soon.", retry_after_s=7), "engine_unavailable"),
    ],
)
async def test_a_refusal_at_submission(raised: Exception, code: str, stream: bool) -> None:
    s = service()
    s.engine.refuse = raised  # type: ignore[assignment]
    exchange = s.chat(stream=stream)
    status, error = await error_of(exchange)
    assert (status, error["code"], exchange.headers["retry-after"]) == (503, code, "7")
    assert s.ended[0].outcome == "refused"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_by_the_engine_keeps_its_status(stream: bool) -> None:
    s = service()
    exchange = s.chat(stream=stream)
    async with exchange:
        await s.engine.wait_requests(1)
        info = ErrorInfo(code="context_length_exceeded", message="Never fits.", param="prompt")
        s.engine.fail(s.engine.requests[0], info)
        assert await exchange.read_status() == 400
        error = msgspec.json.decode(await exchange.read_body())["error"]
    assert (error["code"], error["message"]) == ("context_length_exceeded", "Never fits.")
    assert s.ended[0].outcome == "refused"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(("retry_after_s", "header"), [(12.1, "13"), (None, None)])
async def test_a_deadline_that_cannot_be_met_says_when_to_come_again(
    path: str, retry_after_s: float | None, header: str | None
) -> None:
    s = service()
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True}
    async with s.post(path, body) as exchange:
        await s.engine.wait_requests(1)
        error = DeadlineUnmet("The first token would come too late.", retry_after_s=retry_after_s)
        s.engine.fail(s.engine.requests[0], ErrorInfo.of(error))
        assert await exchange.read_status() == 503
        await exchange.read_body()
    assert exchange.headers.get("retry-after") == header
    assert (s.ended[0].outcome, s.ended[0].error_code) == ("refused", "deadline_unmet")


async def test_the_refusal_of_one_prompt_cancels_the_others() -> None:
    s = service()
    async with s.complete(prompt=["a", "b"], stream=True) as exchange:
        await s.engine.wait_requests(2)
        s.engine.fail(s.engine.requests[1], ErrorInfo(code="queue_full", message="Full.", retry_after_s=1))
        assert await exchange.read_status() == 503
    assert s.engine.num_live == 0
    assert (s.engine.requests[0].request_id, None, "cancelled") in s.engine.cancels


async def test_an_error_in_a_stream_is_its_last_event_without_done() -> None:
    s = service()
    async with s.chat(stream=True) as exchange:
        await s.engine.wait_requests(1)
        s.engine.emit(s.engine.requests[0], b"a")
        await exchange.read_event()
        await exchange.read_event()
        s.engine.fail(s.engine.requests[0], ErrorInfo(code="engine_died", message="The engine died."))
        event = await exchange.read_json_event()
        assert await exchange.read_event() is None
    assert event == {
        "error": {
            "message": "The engine died.",
            "type": "server_error",
            "param": None,
            "code": "engine_died",
        }
    }
    (ended,) = s.ended
    assert (ended.outcome, ended.status, ended.error_code) == ("error", 500, "engine_died")
    assert ended.usage is not None
    assert ended.usage.completion_tokens == 1


async def test_an_error_in_a_whole_response_is_a_500() -> None:
    s = service()
    async with s.chat() as exchange:
        await s.engine.wait_requests(1)
        s.engine.emit(s.engine.requests[0], b"a")
        s.engine.fail(s.engine.requests[0], ErrorInfo(code="engine_died", message="The engine died."))
        assert await exchange.read_status() == 500


async def test_a_request_that_the_server_cancels_itself_is_not_taken_for_complete() -> None:
    s = service()
    async with s.chat() as exchange:
        await s.engine.wait_requests(1)
        s.engine.emit(s.engine.requests[0], b"a")
        s.engine.finish(s.engine.requests[0], "cancelled")
        assert await exchange.read_status() == 503


class BrokenTokenizerError(Exception):
    pass


def broken(s: Service) -> Service:
    def explode(*_: object) -> None:
        raise BrokenTokenizerError("secret detail")

    s.gateway.models["fake"].tokenizer.encode = explode  # type: ignore[assignment, method-assign]
    return s


async def test_a_bug_is_a_500_whose_details_are_in_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    s = broken(service())
    exchange = s.chat()
    status, error = await error_of(exchange)
    assert (status, error["code"], error["type"]) == (500, "internal_error", "server_error")
    request_id = exchange.headers["x-request-id"]
    assert request_id in str(error["message"])
    assert "secret" not in str(error)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.__dict__["request_id"] == request_id
    assert record.exc_info is not None
    assert (s.ended[0].outcome, s.ended[0].error_code) == ("error", "internal_error")
    assert s.gateway.num_active == 0


async def test_too_many_waiting_prompts_are_refused() -> None:
    s = service(config=GatewayConfig(max_pending_prompts=0))
    exchange = s.chat(messages=[{"role": "user", "content": "x" * 3_000}])  # shorter ones do not wait
    status, error = await error_of(exchange)
    assert (status, error["code"], exchange.headers["retry-after"]) == (503, "queue_full", "1")


async def test_a_bug_in_a_stream_is_its_last_event(caplog: pytest.LogCaptureFixture) -> None:
    s = service()
    async with s.chat(stream=True) as exchange:
        await s.engine.wait_requests(1)
        s.engine.emit(s.engine.requests[0], b"a")
        await exchange.read_event()
        await exchange.read_event()
        s.engine.emit(s.engine.requests[0], [-1])  # no such byte
        body = (await exchange.read_body()).decode()
    assert '"code":"internal_error"' in body
    assert "[DONE]" not in body
    assert s.engine.num_live == 0
    assert (s.ended[0].outcome, s.ended[0].status) == ("error", 500)
    assert "failed unexpectedly" in caplog.text


class SilentTokenizer(ByteTokenizer):
    """Finds no token in any text."""

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool = True) -> list[int]:
        del text, parse_special, add_bos
        return []


async def test_a_conversation_that_renders_to_nothing_is_refused() -> None:
    s = service(tokenizer=SilentTokenizer())
    status, error = await error_of(s.chat())
    assert (status, error["param"]) == (400, "messages")


@pytest.mark.parametrize("prompt", ["a", ["a", "b"]])
async def test_an_engine_that_forgets_the_terminal_event_is_a_bug_of_ours(prompt: object) -> None:
    async def nothing(_request: object) -> AsyncIterator[tuple[RequestEvent, ...]]:
        batches: tuple[tuple[RequestEvent, ...], ...] = ()
        for batch in batches:
            yield batch

    s = service()
    s.engine.submit_nowait = nothing  # type: ignore[assignment, method-assign]
    status, error = await error_of(s.complete(prompt=prompt))
    assert (status, error["code"]) == (500, "internal_error")
    assert s.gateway.num_active == 0


async def test_an_iterator_that_raises_is_a_bug_of_ours() -> None:
    async def broken(_request: object) -> AsyncIterator[tuple[RequestEvent, ...]]:
        yield ()
        raise BrokenTokenizerError

    s = service()
    s.engine.submit_nowait = broken  # type: ignore[assignment, method-assign]
    status, error = await error_of(s.complete(prompt=["a", "b"]))
    assert (status, error["code"]) == (500, "internal_error")
