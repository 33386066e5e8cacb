"""The real engine behind every transport: the same tokens as alone, and nothing left when its clients leave."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from headway.core.clock import NS_PER_S, MonotonicClock
from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.errors import QueueFull
from headway.core.messages import Finished, TokenDelta
from headway.engine.client import RequestEvent
from headway.engine.inline import InlineEngineClient
from headway.engine.process import ProcessEngineClient
from headway.engine.supervisor import SupervisedEngineClient
from headway.engine.thread import ThreadEngineClient
from support import served_fake
from support.engine_on_fake import make_request, prompt, run_alone
from support.standin_engine import child_env

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["inline", "thread", "process"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[SupervisedEngineClient]:
    config = EngineConfig(model="fake", scheduler=SchedulerConfig(max_queued_requests=250))
    clock = MonotonicClock()
    client: SupervisedEngineClient
    match request.param:
        case "inline":
            client = InlineEngineClient(config, clock, factory=served_fake.build, auto_step=True)
        case "thread":
            client = ThreadEngineClient(config, clock, factory=served_fake.build)
        case _:
            client = ProcessEngineClient(config, clock, factory=served_fake.FACTORY, env=child_env())
    await client.start()
    yield client
    await client.close()


async def read(stream: AsyncIterator[tuple[RequestEvent, ...]]) -> tuple[list[int], Finished]:
    events = [event async for step in stream for event in step]
    tokens = [token for event in events if isinstance(event, TokenDelta) for token in event.token_ids]
    assert isinstance(events[-1], Finished)
    return tokens, events[-1]


async def test_requests_get_the_tokens_they_get_alone(client: SupervisedEngineClient) -> None:
    requests = [make_request(f"r{i}", prompt(20 + 30 * i, start=i), max_tokens=6) for i in range(6)]
    streams = [client.submit_nowait(request) for request in requests]
    for request, stream in zip(requests, streams, strict=True):
        tokens, finished = await read(stream)
        assert tokens == run_alone(request).of(request.request_id)
        assert finished.error is None


async def test_clients_that_leave_leave_the_engine_idle(client: SupervisedEngineClient) -> None:
    for round_number in range(3):
        requests = [
            make_request(f"{round_number}.{i}", prompt(20, start=i), max_tokens=4000) for i in range(200)
        ]
        streams = [client.submit_nowait(request) for request in requests]
        await anext(streams[0])  # some run, the others wait
        for request in requests:
            client.cancel_nowait(request.request_id)
        for stream in streams:
            await read(stream)
    stats = client.statistics()
    assert client.num_requests == 0
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert stats.num_free_blocks == stats.num_blocks


async def test_the_engines_refusal_is_a_terminal_event(client: SupervisedEngineClient) -> None:
    patient = [
        msgspec.structs.replace(
            make_request(f"r{i}", prompt(16), max_tokens=4000), ttft_deadline_ns=3600 * NS_PER_S
        )
        for i in range(400)
    ]
    streams = [client.submit_nowait(request) for request in patient]
    await asyncio.sleep(0)
    _, refused = await read(streams[-1])
    assert refused.error is not None
    assert refused.error.code == QueueFull.code
    for i in range(400):
        client.cancel_nowait(f"r{i}")
    for stream in streams[:-1]:
        await read(stream)
