"""What every engine client does, whatever its transport: the same tests for process, thread and inline."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from headway.core.clock import MonotonicClock
from headway.core.config import EngineConfig
from headway.core.errors import (
    Draining,
    EngineDied,
    EngineUnavailable,
    HeadwayError,
    InternalError,
    ModelFileError,
)
from headway.core.events import EngineStateChanged, EngineStepped, Event
from headway.core.messages import Cancel, ChoiceFinished, Finished, TokenDelta
from headway.engine.client import RequestEvent
from headway.engine.inline import InlineEngineClient
from headway.engine.process import ProcessEngineClient
from headway.engine.supervisor import SupervisedEngineClient
from headway.engine.thread import ThreadEngineClient
from support import standin_engine
from support.standin_engine import CONFIG, FACTORY, PAUSE_AFTER, child_env, read_until_paused, request

pytestmark = pytest.mark.anyio

Make = Callable[..., SupervisedEngineClient]


@pytest.fixture(params=["inline", "thread", "process"])
def make(request: pytest.FixtureRequest) -> Make:
    """Return a constructor of clients of one transport."""

    def make_client(
        config: EngineConfig = CONFIG, hook: Callable[[Event], None] | None = None
    ) -> SupervisedEngineClient:
        clock = MonotonicClock()
        match request.param:
            case "inline":
                return InlineEngineClient(config, clock, hook, factory=standin_engine.build, auto_step=True)
            case "thread":
                return ThreadEngineClient(config, clock, hook, factory=standin_engine.build)
            case _:
                return ProcessEngineClient(config, clock, hook, factory=FACTORY, env=child_env())

    return make_client


@asynccontextmanager
async def started(client: SupervisedEngineClient) -> AsyncIterator[SupervisedEngineClient]:
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def read(stream: AsyncIterator[tuple[RequestEvent, ...]]) -> list[RequestEvent]:
    return [event async for events in stream for event in events]


async def test_a_request_goes_round(make: Make) -> None:
    events: list[Event] = []
    async with started(make(hook=events.append)) as client:
        assert client.state == "ready"
        assert client.info.system_fingerprint == "standin"
        *tokens, choice, finished = await read(client.submit_nowait(request("a", max_tokens=3)))
        assert tokens == [TokenDelta("a", 0, (1000 + i,)) for i in range(3)]
        assert choice == ChoiceFinished("a", 0, "length")
        assert isinstance(finished, Finished)
        assert client.num_requests == 0
        assert client.statistics().steps_total == 3
    states = [event.state for event in events if isinstance(event, EngineStateChanged)]
    assert states == ["starting", "ready", "closed"]
    assert [event.stats.steps_total for event in events if isinstance(event, EngineStepped)] == [1, 2, 3]


async def test_requests_do_not_mix(make: Make) -> None:
    async with started(make()) as client:
        streams = [
            client.submit_nowait(request(f"r{i}", max_tokens=1 + i % 5, n=1 + i % 3)) for i in range(20)
        ]
        for i, stream in enumerate(streams):
            events = await read(stream)
            assert {event.request_id for event in events} == {f"r{i}"}
            assert sum(isinstance(event, TokenDelta) for event in events) == (1 + i % 5) * (1 + i % 3)
            assert sum(isinstance(event, ChoiceFinished) for event in events) == 1 + i % 3
            assert sum(isinstance(event, Finished) for event in events) == 1


async def test_a_cancel_is_idempotent_and_ends_in_one_terminal_event_with_usage(make: Make) -> None:
    async with started(make()) as client:
        stream = client.submit_nowait(request("a", max_tokens=100, n=2))
        other = client.submit_nowait(request("b", max_tokens=3))
        await read_until_paused(stream)
        for _ in range(3):
            client.cancel_nowait("a")
        client.cancel_nowait("nobody")
        events = await read(stream)
        client.cancel_nowait("a")
        *choices, finished = events
        assert choices == [ChoiceFinished("a", 0, "cancelled"), ChoiceFinished("a", 1, "cancelled")]
        assert isinstance(finished, Finished)
        assert finished.usage.completion_tokens == PAUSE_AFTER
        assert isinstance((await read(other))[-1], Finished)


async def test_one_choice_can_be_ended(make: Make) -> None:
    async with started(make()) as client:
        stream = client.submit_nowait(request("a", max_tokens=100, n=2))
        await read_until_paused(stream)
        client.cancel_nowait("a", choice=1, reason="stop")
        assert await anext(stream) == (ChoiceFinished("a", 1, "stop"),)
        client.cancel_nowait("a", choice=1)
        client.cancel_nowait("a")
        (events,) = [events async for events in stream]
        assert events[0] == ChoiceFinished("a", 0, "cancelled")


async def test_an_iterator_may_be_left_and_the_request_goes_on(make: Make) -> None:
    async with started(make()) as client:
        stream = client.submit_nowait(request("a", max_tokens=100))
        await anext(stream)
        reader = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait({reader})
        assert client.num_requests == 1
        client.cancel_nowait("a")
        assert isinstance((await read(stream))[-1], Finished)


async def test_a_stream_stays_ended(make: Make) -> None:
    async with started(make()) as client:
        stream = client.submit_nowait(request("a", max_tokens=1))
        await read(stream)
        assert await read(stream) == []


async def test_ids_are_unique(make: Make) -> None:
    async with started(make()) as client:
        client.submit_nowait(request("a", max_tokens=100))
        with pytest.raises(ValueError, match="running already"):
            client.submit_nowait(request("a"))


async def test_nothing_is_taken_before_the_start_and_after_the_end(make: Make) -> None:
    client = make()
    with pytest.raises(EngineUnavailable):
        client.submit_nowait(request("a"))
    with pytest.raises(EngineUnavailable):
        _ = client.info
    async with started(client):
        pass
    with pytest.raises(Draining):
        client.submit_nowait(request("a"))
    await client.close()
    with pytest.raises(RuntimeError):
        await client.start()


async def test_drain_refuses_new_requests_and_finishes_the_running_ones(make: Make) -> None:
    async with started(make()) as client:
        stream = client.submit_nowait(request("a", max_tokens=PAUSE_AFTER - 1))
        drained = asyncio.create_task(client.drain(timeout_s=30))
        await asyncio.sleep(0)
        assert client.state == "draining"
        with pytest.raises(Draining):
            client.submit_nowait(request("b"))
        assert await drained
        last = (await read(stream))[-1]
        assert isinstance(last, Finished)
        assert last.error is None
        assert await client.drain(timeout_s=0)


async def test_a_drain_that_takes_too_long_says_so_and_close_ends_the_rest(make: Make) -> None:
    async with started(make()) as client:
        stream = client.submit_nowait(request("a", max_tokens=100, n=2))
        await read_until_paused(stream)
        assert not await client.drain(timeout_s=0)
        await client.close()
        *choices, finished = await read(stream)
        assert choices == [ChoiceFinished("a", 0, "error"), ChoiceFinished("a", 1, "error")]
        assert isinstance(finished, Finished)
        assert finished.error is not None
        assert finished.error.code == "engine_died"
        assert finished.usage.completion_tokens == 2 * PAUSE_AFTER


@pytest.mark.parametrize(("model", "error"), [("missing", ModelFileError), ("bug", InternalError)])
async def test_a_failure_to_start_is_the_engines_own(
    make: Make, model: str, error: type[HeadwayError]
) -> None:
    client = make(EngineConfig(model=model))
    with pytest.raises(error) as raised:
        await client.start()
    assert client.state == "closed"
    if model == "missing":
        assert str(raised.value) == "The file 'missing' does not exist; check --model."


async def test_a_conversation_can_be_released(make: Make) -> None:
    async with started(make()) as client:
        answers = await asyncio.gather(
            client.release_session("known", "a"), client.release_session("other", "a")
        )
        assert list(answers) == [True, False]
    with pytest.raises(Draining):
        await client.release_session("known", "a")


async def test_a_release_that_the_engine_did_not_live_to_answer_says_so(make: Make) -> None:
    async with started(make()) as client:
        waiting = asyncio.create_task(client.release_session("known", "never answered"))
        assert await client.release_session("known", "a")
        await client.close()
        with pytest.raises(EngineDied):
            await waiting


async def test_clients_that_leave_at_once_leave_nothing_behind(make: Make) -> None:
    async with started(make()) as client:
        num_fds = len(os.listdir("/proc/self/fd"))
        num_tasks = len(asyncio.all_tasks())
        for round_number in range(5):
            streams = [
                client.submit_nowait(request(f"{round_number}.{i}", max_tokens=100)) for i in range(200)
            ]
            readers = [asyncio.create_task(read(stream)) for stream in streams]
            await asyncio.sleep(0)
            for i, reader in enumerate(readers):
                reader.cancel()
                client.cancel_nowait(f"{round_number}.{i}")
            await asyncio.wait(readers)
            del streams, readers
        assert await client.drain(timeout_s=30)
        assert client.num_requests == 0
        assert client.statistics().num_running == 0
        assert len(asyncio.all_tasks()) - num_tasks in (
            0,
            -1,
        )  # the supervisor may have seen the engine leave
        assert len(os.listdir("/proc/self/fd")) <= num_fds


async def test_starting_and_closing_leaks_no_descriptor(make: Make) -> None:
    async with started(make()):
        pass  # what is opened once and kept, is
    num_fds = len(os.listdir("/proc/self/fd"))
    num_tasks = len(asyncio.all_tasks())
    for _ in range(2):
        async with started(make()) as client:
            client.submit_nowait(request("a", max_tokens=100))
    assert len(os.listdir("/proc/self/fd")) == num_fds
    assert len(asyncio.all_tasks()) == num_tasks


async def test_a_hook_that_fails_does_not_end_the_engine(make: Make) -> None:
    def hook(event: Event) -> None:
        raise RuntimeError(f"a bug in a listener of {event}")

    async with started(make(hook=hook)) as client:
        assert isinstance((await read(client.submit_nowait(request("a"))))[-1], Finished)


async def test_the_engine_hears_of_each_cancellation_once() -> None:
    client = InlineEngineClient(CONFIG, MonotonicClock(), factory=standin_engine.build)
    async with started(client):
        client.submit_nowait(request("a", max_tokens=100, n=2))
        for _ in range(2):
            client.cancel_nowait("a", choice=0, reason="stop")
        for _ in range(2):
            client.cancel_nowait("a")
        engine = client.engine
        assert isinstance(engine, standin_engine.StandinEngine)
        assert [message for message in engine.handled if isinstance(message, Cancel)] == [
            Cancel(request_id="a", choice=0, reason="stop"),
            Cancel(request_id="a"),
        ]


async def test_a_request_that_cannot_be_sent_leaves_nothing_behind(make: Make) -> None:
    async with started(make()) as client:
        unsendable = msgspec.structs.replace(request("r"), stop_token_ids=(2**70,))
        with pytest.raises(OverflowError):
            client.submit_nowait(unsendable)
        assert client.num_requests == 0
        assert await client.drain(timeout_s=5)
