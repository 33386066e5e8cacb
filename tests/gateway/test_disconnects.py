"""Scenario 1 and 7 at the level of HTTP: clients leave at every stage; long prompts do not hold up streams."""

import asyncio
import threading

import pytest

from headway.gateway.config import GatewayConfig
from headway.gateway.prompt_worker import AT_ONCE_BYTES
from support.byte_text import ByteTokenizer
from support.gateway_app import Service, service

pytestmark = pytest.mark.anyio


class SlowTokenizer(ByteTokenizer):
    """Encodes a prompt that holds "slow" only when the test lets it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.began = asyncio.Event()
        self.go_on = threading.Event()

    def min_num_tokens(self, text: str) -> int:
        return len(text) if "slow" not in text else 0

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool = True) -> list[int]:
        if "slow" in text:
            self.loop.call_soon_threadsafe(self.began.set)
            assert self.go_on.wait(timeout=30)
        return super().encode(text, parse_special=parse_special, add_bos=add_bos)


SLOW = [{"role": "user", "content": "slow" + "." * AT_ONCE_BYTES}]


def assert_cancelled_everywhere(s: Service) -> None:
    """Nothing runs, and the request ended once, as cancelled."""
    assert s.engine.num_live == 0
    assert s.gateway.num_active == 0
    assert [event.outcome for event in s.ended] == ["cancelled"]
    assert s.ended[0].status == 499


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_leaves_before_the_engine_did_anything(stream: bool) -> None:
    s = service()
    async with s.chat(stream=stream, n=2) as exchange:
        await s.engine.wait_requests(1)
        exchange.disconnect()
        await exchange.wait_ended()
    assert s.engine.cancels == [(s.engine.requests[0].request_id, None, "cancelled")]
    assert_cancelled_everywhere(s)
    assert exchange.status is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_leaves_while_tokens_come(stream: bool) -> None:
    s = service()
    async with s.chat(stream=stream) as exchange:
        await s.engine.wait_requests(1)
        s.engine.emit(s.engine.requests[0], b"abc")
        if stream:
            await exchange.read_event()
        exchange.disconnect()
        await exchange.wait_ended()
    assert_cancelled_everywhere(s)
    usage = s.ended[0].usage
    assert usage is not None
    assert usage.prompt_tokens == 5
    assert usage.completion_tokens in ({3} if stream else {0, 3})


async def test_all_prompts_of_a_call_are_cancelled() -> None:
    s = service()
    async with s.complete(prompt=["a", "b", "c"], stream=True) as exchange:
        await s.engine.wait_requests(3)
        exchange.disconnect()
        await exchange.wait_ended()
    assert [cancel[0] for cancel in s.engine.cancels] == [r.request_id for r in s.engine.requests]
    assert_cancelled_everywhere(s)


async def test_a_client_leaves_within_its_body() -> None:
    s = service()
    async with s.post("/v1/chat/completions", b"{", complete=False) as exchange:
        exchange.disconnect()
        await exchange.wait_ended()
    assert s.ended == []
    assert exchange.status is None


async def test_a_client_leaves_while_its_prompt_is_tokenised_or_waits_for_it() -> None:
    tokenizer = SlowTokenizer()
    s = service(tokenizer=tokenizer)
    async with s.chat(messages=SLOW) as first:
        await tokenizer.began.wait()
        async with s.chat() as second:
            second.disconnect()
            await second.wait_ended()
        assert s.gateway.prompt_worker.num_pending == 1  # the waiting one was dropped
        first.disconnect()
        await first.wait_ended()
        assert s.gateway.num_active == 0
        tokenizer.go_on.set()
    assert s.engine.requests == []
    assert [event.outcome for event in s.ended] == ["cancelled", "cancelled"]


async def test_running_streams_deliver_while_an_8_mib_prompt_is_tokenised() -> None:
    tokenizer = SlowTokenizer()
    s = service(tokenizer=tokenizer)
    async with s.chat(stream=True) as stream:
        await s.engine.wait_requests(1)
        huge = "slow" + "x" * (8 * 1024 * 1024 - 200)
        async with s.complete(prompt=huge) as long:
            await tokenizer.began.wait()
            for byte in b"abc":
                s.engine.emit(s.engine.requests[0], bytes([byte]))
            assert '"role"' in str(await stream.read_event())
            for char in "abc":
                assert f'"content":"{char}"' in str(await stream.read_event())
            assert long.status is None
            tokenizer.go_on.set()
            assert await long.read_status() == 400
        s.engine.finish(s.engine.requests[0])


async def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    s = service(config=GatewayConfig(slow_reader_timeout_s=0.001))
    async with s.post(
        "/v1/chat/completions",
        b'{"stream":true,"messages":[{"role":"user","content":"hi"}]}',
        reads=False,
    ) as exchange:
        await s.engine.wait_requests(1)
        s.engine.emit(s.engine.requests[0], b"a")
        await exchange.wait_ended()
    assert s.engine.num_live == 0
    (ended,) = s.ended
    assert (ended.outcome, ended.error_code) == ("cancelled", "slow_reader")


async def test_stopping_the_server_cancels_what_runs() -> None:
    s = service()
    async with s.chat(stream=True) as exchange:
        await s.engine.wait_requests(1)
        exchange.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.wait_ended()
        assert s.engine.num_live == 0
        assert [event.outcome for event in s.ended] == ["cancelled"]
        exchange.forget()


async def test_two_hundred_clients_leave_at_once_and_nothing_is_left() -> None:
    s = service()
    for _ in range(5):
        exchanges = [s.chat(stream=index % 2 == 0) for index in range(200)]
        before = len(s.engine.requests)
        for exchange in exchanges:
            await exchange.__aenter__()
        await s.engine.wait_requests(before + 200)
        for exchange in exchanges:
            exchange.disconnect()
        for exchange in exchanges:
            await exchange.wait_ended()
        assert s.engine.num_live == 0
    assert len(s.ended) == 1000
    assert {event.outcome for event in s.ended} == {"cancelled"}
    assert s.gateway.num_active == 0
    assert s.gateway.prompt_worker.num_pending == 0
