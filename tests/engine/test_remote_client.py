"""A remote engine's client against servers by script, over loopback: answers, cancellations, failures, time-outs."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from anyio.lowlevel import checkpoint

from headway.core.clock import ManualClock
from headway.core.errors import ConfigError, Draining, EngineUnavailable, InvalidRequest
from headway.core.events import EngineStateChanged, EngineStepped, Event
from headway.core.messages import ChoiceFinished, Finished, TokenDelta
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.secret import Secret
from headway.engine.client import RequestEvent
from headway.engine.remote import TICK_S, RemoteEngineClient
from headway.engine.remote_config import RemoteConfig, RemoteText
from headway.flow.gradient import Gradient
from headway.flow.remote import RemoteGate
from headway.flow.remote_turns import RemoteTurns
from support.scripted_upstream import (
    DONE,
    HEAD,
    Asked,
    Script,
    ScriptedUpstream,
    Write,
    chunk,
    event,
    refusal,
    saying,
    upstream,
)
from support.wound_sleep import WoundSleep

pytestmark = pytest.mark.anyio

GOOD = (
    HEAD,
    chunk(7, 8),
    chunk(9, reason="length"),
    event({"choices": [], "usage": {"prompt_tokens": 3}}),
    DONE,
)


def request(request_id: str = "a", **fields: object) -> Request:
    asked = {"token_ids": (1, 2, 3), "sampling": SamplingParams(), "max_tokens": 4, **fields}
    return msgspec.convert({"request_id": request_id, **asked}, Request)


@dataclass
class World:
    client: RemoteEngineClient
    server: ScriptedUpstream
    sleep: WoundSleep
    events: list[Event]

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.events if isinstance(event, EngineStateChanged)]

    async def until(self, check: Callable[[], bool]) -> None:
        """Let everything react. Sockets tell nobody when they will: this has to look."""
        while not check():
            await checkpoint()

    async def wind_until(self, check: Callable[[], bool], seconds: float = TICK_S) -> None:
        """Let time pass until something has happened."""
        while not check():
            self.sleep.wind(seconds)
            for _ in range(20):
                await checkpoint()


def make(url: str, num_places: int = 8, **fields: Any) -> tuple[RemoteEngineClient, WoundSleep, list[Event]]:
    clock, events = ManualClock(), list[Event]()
    sleep = WoundSleep(clock)
    gradient = Gradient(limit=num_places, min_limit=num_places, max_limit=num_places)
    config = msgspec.structs.replace(RemoteConfig(model="m", url=url), **fields)
    client = RemoteEngineClient(
        config,
        RemoteText(vocab_size=50, sample=("a b c", (1, 2, 3))),
        clock,
        RemoteTurns(RemoteGate(clock, gradient=gradient), max_waiting_tokens=1000),
        events.append,
        sleep=sleep,
    )
    return client, sleep, events


@asynccontextmanager
async def world(script: Script | None = None, **fields: Any) -> AsyncIterator[World]:
    async with upstream(script) as server:
        client, sleep, events = make(server.url, **fields)
        await client.start()
        try:
            yield World(client, server, sleep, events)
        finally:
            await client.close()


async def read(stream: AsyncIterator[tuple[RequestEvent, ...]]) -> list[RequestEvent]:
    return [one async for step in stream for one in step]


async def code_of(stream: AsyncIterator[tuple[RequestEvent, ...]]) -> str | None:
    """Read to the end, which must be the only one, and return its error's code."""
    events = await read(stream)
    ends = [one for one in events if isinstance(one, Finished)]
    assert events[-1:] == ends, "a request ends once, at its end"
    return None if ends[0].error is None else ends[0].error.code


async def hang(asked: Asked, _: Write) -> None:
    await asked.gone.wait()


def then_hang(*pieces: bytes) -> Script:
    async def script(asked: Asked, write: Write) -> None:
        for piece in pieces:
            await write(piece)
        await hang(asked, write)

    return script


async def test_tokens_go_there_and_come_back() -> None:
    async with world(saying(*GOOD), api_key=Secret("key")) as w:
        assert w.client.state == "ready"
        assert (w.client.info.max_context, w.client.info.repeats_exactly) == (100, True)
        events = await read(w.client.submit_nowait(request()))
        tokens = [token for one in events if isinstance(one, TokenDelta) for token in one.token_ids]
        assert tokens == [7, 8, 9]
        assert events[-2] == ChoiceFinished("a", 0, "length")
        last = events[-1]
        assert isinstance(last, Finished)
        assert (last.error, last.usage.prompt_tokens, last.usage.completion_tokens) == (None, 3, 3)
        asked = w.server.asked[0]
        assert asked.fields["prompt"] == [1, 2, 3]
        assert asked.headers["authorization"] == "Bearer key"
        assert "x-headway-class" not in asked.headers, "it is no Headway"
        await w.until(lambda: isinstance(w.events[-1], EngineStepped) and not w.events[-1].stats.num_running)
        assert w.client.statistics().decode_tokens_total == 3


async def test_a_cancellation_closes_the_connection_at_once() -> None:
    async with world(then_hang(HEAD, chunk(7))) as w:
        stream = w.client.submit_nowait(request())
        assert (await anext(stream))[0] == TokenDelta("a", 0, (7,))
        w.client.cancel_nowait("a")
        w.client.cancel_nowait("a")
        events = await read(stream)
        assert events[0] == ChoiceFinished("a", 0, "cancelled")
        assert isinstance(events[1], Finished)
        assert events[1].usage.completion_tokens == 1
        await w.server.asked[0].gone.wait()


async def test_one_choice_is_cancelled_alone_and_the_last_one_hangs_up() -> None:
    more = asyncio.Event()

    async def script(asked: Asked, write: Write) -> None:
        await write(HEAD + chunk(7) + chunk(8, index=1))
        await more.wait()
        await write(chunk(9) + chunk(10, index=1))
        await asked.gone.wait()

    async with world(script) as w:
        stream = w.client.submit_nowait(request(n=2))
        await anext(stream)
        w.client.cancel_nowait("a", 0, "stop")
        assert await anext(stream) == (ChoiceFinished("a", 0, "stop"),)
        more.set()
        assert await anext(stream) == (TokenDelta("a", 1, (10,)),)
        w.client.cancel_nowait("a", 1, "stop")
        assert await code_of(stream) is None
        await w.server.asked[0].gone.wait()


async def test_a_request_cancelled_before_its_turn_is_never_sent() -> None:
    async with world(then_hang(HEAD, chunk(7)), num_places=1) as w:
        first = w.client.submit_nowait(request("a"))
        await anext(first)
        second = w.client.submit_nowait(request("b"))
        await w.until(lambda: w.client.statistics().num_waiting == 1)
        w.client.cancel_nowait("b")
        assert await code_of(second) is None
        assert len(w.server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "code", "retry_after_s"),
    [
        (refusal(429, headers="Retry-After: 17\r\n"), "upstream_limited", 17.0),
        (refusal(429), "upstream_limited", 1.0),
        (refusal(503, headers="Retry-After: 9\r\n"), "engine_unavailable", 9.0),
        (refusal(503, "queue_full", headers="Retry-After: 2\r\n"), "queue_full", 2.0),
        (refusal(400, 400), "invalid_request", None),
        (refusal(400, "context_length_exceeded"), "context_length_exceeded", None),
        (refusal(401, "unauthenticated"), "engine_unavailable", 1.0),
        (refusal(500), "upstream_failed", None),
        (b"HTTP/1.1 500 X\r\nContent-Length: 3\r\n\r\n<p>", "upstream_failed", None),
    ],
)
async def test_refusals_keep_their_meaning(answer: bytes, code: str, retry_after_s: float | None) -> None:
    async with world(saying(answer)) as w:
        events = await read(w.client.submit_nowait(request()))
        last = events[-1]
        assert isinstance(last, Finished)
        assert last.error is not None
        assert (last.error.code, last.error.retry_after_s) == (code, retry_after_s)


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ((HEAD, chunk(7)), "engine_died"),
        ((HEAD, chunk(7), chunk(8, reason="stop")), "engine_died"),  # a lost [DONE]
        ((HEAD, chunk(7), DONE), "upstream_failed"),
        ((HEAD,), "engine_unavailable"),  # nobody saw any of it: it may be sent again
        ((b"",), "engine_unavailable"),
        ((HEAD, chunk(7), event({"error": {"message": "boom", "code": 500}})), "upstream_failed"),
        ((HEAD, chunk(7), event({"error": {"message": "slow down", "code": 429}})), "upstream_limited"),
        ((HEAD, event({"error": {"message": "late", "code": "deadline_unmet"}})), "deadline_unmet"),
        ((HEAD, chunk(7), event({"error": {"message": "x", "code": "engine_died"}})), "engine_died"),
        ((HEAD, b"event: error\ndata: {}\n\n"), "upstream_failed"),
        ((HEAD, b"data: {\n\n"), "upstream_failed"),
        ((HEAD, chunk(50)), "upstream_failed"),
        ((HEAD, chunk(1, 2, 3, 4, 5)), "upstream_failed"),
        ((HEAD, chunk(1, index=1)), "upstream_failed"),
        ((HEAD, event({"choices": [{"index": 0, "text": "no ids"}]})), "upstream_failed"),
    ],
)
async def test_an_answer_that_is_none_ends_typed(pieces: tuple[bytes, ...], code: str) -> None:
    async with world(saying(*pieces)) as w:
        assert await code_of(w.client.submit_nowait(request())) == code
        assert w.client.num_requests == 0


async def test_what_came_before_an_error_is_the_callers() -> None:
    for wrong in (event({"error": {"message": "boom"}}), DONE):
        async with world(saying(HEAD + chunk(7) + wrong)) as w:
            events = await read(w.client.submit_nowait(request()))
            assert events[0] == TokenDelta("a", 0, (7,))
            assert w.client.statistics().num_running == 0


async def test_what_it_cannot_do_is_refused_by_name() -> None:
    async with world() as w:
        with pytest.raises(InvalidRequest):
            w.client.submit_nowait(request(pooling="mean"))
        assert w.client.num_requests == 0


@pytest.mark.parametrize("script", [hang, then_hang(HEAD)])
async def test_a_first_token_that_never_comes_times_out(script: Script) -> None:
    async with world(script, first_token_timeout_s=20.0) as w:
        stream = w.client.submit_nowait(request())
        asked = await w.server.arrived.get()
        await w.wind_until(lambda: w.client.num_requests == 0)
        assert await code_of(stream) == "upstream_timeout"
        await asked.gone.wait()


async def test_an_answer_that_stops_coming_times_out() -> None:
    async with world(then_hang(HEAD, chunk(7)), gap_timeout_s=5.0) as w:
        stream = w.client.submit_nowait(request())
        await anext(stream)
        await w.wind_until(lambda: w.client.num_requests == 0)
        assert await code_of(stream) == "upstream_timeout"


@pytest.mark.parametrize("chatter", [b"", b": still here\n\n"])
async def test_a_response_that_does_not_end_after_its_answer_gives_its_place_back(chatter: bytes) -> None:
    left = asyncio.Event()

    async def goes_on(asked: Asked, write: Write) -> None:
        try:
            for piece in GOOD:
                await write(piece)
            while chatter:
                await write(chatter)
                await checkpoint()
            await asked.gone.wait()
        finally:
            left.set()

    async with world(goes_on, gap_timeout_s=1e6) as w:
        assert await code_of(w.client.submit_nowait(request())) is None
        for _ in range(50):
            w.sleep.wind(TICK_S)
            for _ in range(20):
                await checkpoint()
        assert left.is_set()
        assert w.client.state == "ready"


async def test_a_server_that_comes_later_is_waited_for() -> None:
    async with upstream() as gone:
        port = int(gone.url.split(":")[2].split("/")[0])
    client, sleep, events = make(gone.url)
    await client.start()
    try:
        assert client.state == "starting"
        with pytest.raises(EngineUnavailable):
            client.submit_nowait(request())
        with pytest.raises(EngineUnavailable):
            _ = client.info
        async with upstream(saying(*GOOD), port=port) as server:
            w = World(client, server, sleep, events)
            await w.wind_until(lambda: client.state == "ready", 30.0)
            assert await code_of(client.submit_nowait(request())) is None
        assert w.states == ["starting", "ready"]
    finally:
        await client.close()


async def test_a_lost_server_is_noticed_by_a_request_and_found_again() -> None:
    async with world(saying(*GOOD)) as w:
        port = int(w.server.url.split(":")[2].split("/")[0])
        w.server.models = refusal(500)
        w.server.script = saying(b"")
        assert await code_of(w.client.submit_nowait(request())) == "engine_unavailable"
        await w.until(lambda: w.client.state == "restarting")
        with pytest.raises(EngineUnavailable) as refused:
            w.client.submit_nowait(request())
        assert refused.value.retry_after_s == 1.0
        w.server.models = {"data": [{"id": "up", "max_model_len": 100}]}
        w.server.probe = {"choices": [{"index": 0, "token_ids": [1]}]}
        await w.wind_until(lambda: w.client.state == "ready")
        assert not w.client.info.repeats_exactly, "it is another one now"
        assert port


async def test_whoever_waits_for_a_lost_server_waits_until_it_was_asked() -> None:
    async with world(saying(HEAD, chunk(7))) as w:
        await w.client.wait_ready()
        w.server.models = refusal(500)
        assert await code_of(w.client.submit_nowait(request())) == "engine_died"
        waiting = asyncio.create_task(w.client.wait_ready())
        await w.until(lambda: w.client.state == "restarting")
        assert not waiting.done()
        w.server.models = {"data": [{"id": "up", "max_model_len": 100}]}
        await w.wind_until(waiting.done)
        assert w.client.state == "ready"


async def test_nobody_waits_for_a_client_that_is_closed() -> None:
    async with upstream() as gone:
        pass
    client, _, _ = make(gone.url)
    await client.start()
    waiting = asyncio.create_task(client.wait_ready())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(EngineUnavailable):
        await waiting


async def test_a_server_is_asked_now_and_then() -> None:
    async with world() as w:
        before = w.server.num_polls
        w.server.models = refusal(503)
        await w.wind_until(lambda: w.client.state == "restarting")
        assert w.server.num_polls > before


@pytest.mark.parametrize(
    ("models", "probe", "words"),
    [
        ({"data": []}, None, "does not serve"),
        ({"data": [{"id": "other", "max_model_len": 1}]}, None, "does not serve"),
        ({"nothing": 1}, None, "does not list"),
        (refusal(401), None, "key"),
        (refusal(404), None, "often ends in /v1"),
        (None, {"choices": [{"index": 0, "text": "x"}]}, "return_token_ids"),
        (None, {"choices": [{"token_ids": [1]}], "usage": {"prompt_tokens": 7}}, "tokenizer"),
        ({"data": [{"id": "up"}]}, None, "--max-context"),
    ],
)
async def test_a_server_that_cannot_be_used_is_told_at_the_start(
    models: object, probe: object, words: str
) -> None:
    async with upstream() as server:
        server.models = models or server.models
        server.probe = probe or server.probe
        client, _, _ = make(server.url, upstream_model="up")
        with pytest.raises(ConfigError, match=words):
            await client.start()
        assert client.state == "closed"


async def test_draining_refuses_and_waits_and_closing_ends_what_runs() -> None:
    async with world(then_hang(HEAD, chunk(7))) as w:
        stream = w.client.submit_nowait(request())
        await anext(stream)
        assert not await w.client.drain(0)
        with pytest.raises(Draining):
            w.client.submit_nowait(request("b"))
        await w.client.close()
        assert await code_of(stream) == "engine_died"
        assert await w.client.drain(0)


async def test_whoever_leaves_at_any_time_leaves_nothing_behind() -> None:
    rng = random.Random(1)

    async def script(asked: Asked, write: Write) -> None:
        await write(HEAD)
        for _ in range(3):
            await checkpoint()
            await write(chunk(7))
        await (
            hang(asked, write) if len(asked.fields["prompt"]) == 1 else write(chunk(8, reason="stop") + DONE)
        )

    async with world(script, num_places=4) as w:
        streams = []
        for number in range(200):
            prompt = (1,) * rng.choice((1, 3))
            asked = request(
                str(number), token_ids=prompt, service_class=rng.choice(("high", "normal", "low"))
            )
            streams.append(w.client.submit_nowait(asked))
            for _ in range(rng.randrange(8)):
                await checkpoint()
            if len(prompt) == 1 or rng.random() < 0.5:
                w.client.cancel_nowait(str(number))
        codes = {await code_of(stream) for stream in streams}
        assert codes <= {None, "displaced"}
        stats = w.client.statistics()
        assert (stats.num_running, stats.num_waiting, stats.num_waiting_tokens) == (0, 0, 0)
        for asked_there in w.server.asked:
            if len(asked_there.fields["prompt"]) == 1:
                await asked_there.gone.wait()
        four = [w.client.submit_nowait(request(f"after {i}")) for i in range(4)]
        assert [await code_of(stream) for stream in four] == [None] * 4


async def test_high_takes_the_place_of_low_that_has_no_token() -> None:
    async def script(asked: Asked, write: Write) -> None:
        if len(asked.fields["prompt"]) == 1:
            await hang(asked, write)
        for piece in GOOD:
            await write(piece)

    async with world(script, num_places=1) as w:
        low = w.client.submit_nowait(request("low", token_ids=(1,), service_class="low"))
        asked = await w.server.arrived.get()
        high = w.client.submit_nowait(request("high", service_class="high"))
        assert await code_of(low) == "displaced"
        assert await code_of(high) is None
        await asked.gone.wait()


async def test_another_headway_is_told_who_asks() -> None:
    async with upstream(saying(*GOOD)) as server:
        server.models = {"data": [{"id": "up", "owned_by": "headway", "max_model_len": 100}]}
        client, _, _ = make(server.url)
        await client.start()
        stream = client.submit_nowait(
            request(
                tenant="acme", service_class="high", session="s", ttft_deadline_ns=2_000_000, arrival_ns=0
            )
        )
        assert await code_of(stream) is None
        await client.close()
        names = ("class", "tenant", "session", "ttft-ms")
        assert [server.asked[0].headers[f"x-headway-{name}"] for name in names] == [
            "high",
            "acme",
            "s",
            "2.000",
        ]
