"""A generation and the engines that end under it, one after the other."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
import pytest
from anyio.lowlevel import checkpoint

from headway.core.clock import ManualClock
from headway.core.errors import (
    Draining,
    EngineDied,
    EngineUnavailable,
    HeadwayError,
    InternalError,
    QueueFull,
)
from headway.core.messages import EngineInfo, ErrorInfo
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.client import RequestEvent
from headway.gateway import survival
from headway.gateway.choices import Choices
from headway.gateway.generation import Generation
from headway.gateway.request_record import RequestRecord
from headway.gateway.step_record import decode_steps, encode_step
from headway.gateway.text_events import Piece
from support.gateway_app import served
from support.scripted_client import INFO, FakeEngineClient

pytestmark = pytest.mark.anyio

DIED = ErrorInfo(code="engine_died", message="Gone.")


class Engine(FakeEngineClient):
    """Comes back when the test says; `lost` ends it."""

    def __init__(self, info: EngineInfo = INFO) -> None:
        super().__init__(info)
        self.refusals: list[HeadwayError] = []
        self.hears = True

    def comes_back(self, info: EngineInfo | None = None) -> None:
        future: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        future.set_result(info or self.info)
        self.returns.append(future)

    def submit_nowait(self, request: Request) -> AsyncIterator[tuple[RequestEvent, ...]]:
        if self.refusals:
            raise self.refusals.pop(0)
        return super().submit_nowait(request)

    def cancel_nowait(
        self, request_id: str, choice: int | None = None, reason: Literal["cancelled", "stop"] = "cancelled"
    ) -> None:
        if self.hears:
            super().cancel_nowait(request_id, choice, reason)

    def lost(self) -> None:
        for request in self.requests[-self.num_live :]:
            self.fail(request, DIED)


def generation(engine: Engine, *, n: int = 1, num_prompts: int = 1, survives: bool = True) -> Generation:
    requests = [
        Request(request_id=f"r-{i}", token_ids=(1, 2), sampling=SamplingParams(seed=3), max_tokens=9, n=n)
        for i in range(num_prompts)
    ]
    record = RequestRecord(
        request_id="r", model="fake", service_class="normal", arrival_ns=0, clock=ManualClock(), hook=None
    )
    choices = Choices(requests, served(engine).text_maker(("END",)))
    return Generation(engine=engine, choices=choices, record=record, survives=survives)


class Reader:
    """Reads a generation in a task of its own."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self.text = ""
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async with self._generation as generation:
            async for events in generation.events():
                self.text += "".join(event.text for event in events if isinstance(event, Piece))


async def settle() -> None:
    for _ in range(20):
        await checkpoint()


async def test_it_goes_on_where_it_was_and_counts_each_token_once() -> None:
    engine = Engine()
    running = generation(engine)
    reader = Reader(running)
    await engine.wait_requests(1)
    engine.emit(engine.requests[0], b"ab")
    engine.comes_back()
    engine.lost()
    await engine.wait_requests(2)
    resumed = engine.requests[1]
    assert (resumed.token_ids, resumed.num_resumed, resumed.max_tokens) == ((1, 2, *b"ab"), 2, 7)
    engine.emit(resumed, b"cd")
    engine.finish(resumed, cached_tokens=4)
    await reader.task
    assert reader.text == "abcd"
    assert running.num_resumed == 1
    usage = running.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (2, 4, 2)


async def test_of_several_prompts_only_what_is_open_is_asked_again() -> None:
    engine = Engine()
    reader = Reader(generation(engine, n=2, num_prompts=2))
    await engine.wait_requests(2)
    first, second = engine.requests
    engine.emit(first, b"a", 0)
    engine.emit(first, b"END", 1)  # the engine has not heard yet that it ended
    engine.finish(second)
    await settle()
    engine.comes_back()
    engine.fail(first, DIED)
    await engine.wait_requests(3)
    (resumed,) = engine.requests[2:]
    assert (resumed.request_id, resumed.first_choice) == ("r-0.0", 0)
    engine.finish(resumed)
    await reader.task


async def test_no_engine_is_waited_for_when_every_choice_has_ended() -> None:
    engine = Engine()
    reader = Reader(generation(engine))
    await engine.wait_requests(1)
    request = engine.requests[0]
    engine.hears = False
    engine.emit(request, b"abEND")
    engine.fail(request, DIED)
    await reader.task
    assert reader.text == "ab"
    assert engine.requests == [request]


async def test_a_prompt_that_failed_for_itself_is_told_though_the_engine_ended_then() -> None:
    engine = Engine()
    reader = Reader(generation(engine, num_prompts=2))
    await engine.wait_requests(2)
    engine.comes_back()
    engine.fail(engine.requests[0], DIED)
    engine.fail(engine.requests[1], ErrorInfo(code="internal_error", message="A bug."))
    with pytest.raises(InternalError, match="A bug"):
        await reader.task


@pytest.mark.parametrize("survives", [True, False])
async def test_who_did_not_ask_for_it_is_told_at_once(survives: bool) -> None:
    engine = Engine(msgspec.structs.replace(INFO, repeats_exactly=not survives))
    reader = Reader(generation(engine, survives=survives))
    await engine.wait_requests(1)
    engine.emit(engine.requests[0], b"a")
    engine.comes_back()
    engine.lost()
    with pytest.raises(EngineDied, match="Gone"):
        await reader.task
    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    "changes", [{"system_fingerprint": "another"}, {"repeats_exactly": False}], ids=["different", "inexact"]
)
async def test_another_engine_does_not_go_on_with_it(changes: dict[str, object]) -> None:
    engine = Engine()
    reader = Reader(generation(engine))
    await engine.wait_requests(1)
    engine.comes_back(msgspec.structs.replace(INFO, **changes))
    engine.lost()
    with pytest.raises(EngineDied, match="different"):
        await reader.task


async def test_an_engine_that_never_comes_back_is_the_error_it_ended_with() -> None:
    engine = Engine()
    reader = Reader(generation(engine))
    await engine.wait_requests(1)
    engine.lost()
    with pytest.raises(EngineDied, match="Gone") as told:
        await reader.task
    assert isinstance(told.value.__cause__, EngineUnavailable)


async def test_the_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survival, "READY_WITHIN_S", 0.0)
    engine = Engine()
    engine.returns.append(asyncio.get_running_loop().create_future())
    reader = Reader(generation(engine))
    await engine.wait_requests(1)
    engine.lost()
    with pytest.raises(EngineDied, match="Gone"):
        await reader.task


async def test_it_is_given_up_only_if_it_never_gets_on() -> None:
    engine = Engine()
    reader = Reader(generation(engine))
    for number in range(1, 7):  # twice as often as without a token
        await engine.wait_requests(number)
        engine.emit(engine.requests[-1], b"a")
        engine.comes_back()
        engine.lost()
    for number in range(7, 9):
        await engine.wait_requests(number)
        engine.comes_back()
        engine.lost()
    with pytest.raises(EngineDied, match="Gone"):
        await reader.task
    assert reader.text == "a" * 6


@pytest.mark.parametrize("num_tokens", [0, 1])
async def test_one_that_never_had_a_token_is_given_up_sooner(num_tokens: int) -> None:
    engine = Engine()
    reader = Reader(generation(engine))
    await engine.wait_requests(1)
    engine.emit(engine.requests[0], b"a" * num_tokens)
    for number in range(1, 3 + num_tokens):
        await engine.wait_requests(number)
        engine.comes_back()
        engine.lost()
    with pytest.raises(EngineDied, match="Gone"):
        await reader.task
    assert len(engine.requests) == 2 + num_tokens


async def test_an_engine_that_ends_again_before_it_is_asked_is_waited_for() -> None:
    engine = Engine()
    reader = Reader(generation(engine))
    await engine.wait_requests(1)
    engine.emit(engine.requests[0], b"a")
    await settle()
    engine.refusals = [EngineUnavailable("It is restarting.")]
    engine.comes_back()
    engine.comes_back()
    engine.lost()
    await engine.wait_requests(2)
    engine.finish(engine.requests[1])
    await reader.task
    assert reader.text == "a"


@pytest.mark.parametrize("refusal", [QueueFull("Full."), Draining("Shutting down.")])
async def test_a_refusal_by_the_next_engine_is_told_as_it_is(refusal: HeadwayError) -> None:
    engine = Engine()
    reader = Reader(generation(engine, n=2))
    await engine.wait_requests(1)
    engine.comes_back()
    await settle()
    engine.refusals = [refusal]
    engine.lost()
    with pytest.raises(type(refusal)):
        await reader.task
    assert engine.num_live == 0


async def test_a_client_that_leaves_meanwhile_ends_the_wait() -> None:
    engine = Engine()
    back: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
    engine.returns.append(back)
    running = generation(engine)
    reader = Reader(running)
    await engine.wait_requests(1)
    engine.lost()
    await settle()
    assert not reader.task.done()
    running.cancel()
    await reader.task
    assert back.cancelled()
    assert len(engine.requests) == 1


async def test_a_server_that_stops_meanwhile_leaves_no_task() -> None:
    engine = Engine()
    back: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
    engine.returns.append(back)
    reader = Reader(generation(engine))
    await engine.wait_requests(1)
    engine.lost()
    await settle()
    reader.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader.task
    await settle()
    assert back.cancelled()


async def test_tokens_that_come_with_the_engines_end_are_told_though_they_made_no_text() -> None:
    engine = Engine()
    running = generation(engine)
    kept = b""

    async def read() -> None:
        nonlocal kept
        async with running:
            async for _ in running.events():
                kept += encode_step(running.step)

    reading = asyncio.ensure_future(read())
    await engine.wait_requests(1)
    engine.comes_back()
    engine.fail(engine.requests[0], DIED, last_tokens=b"E")  # held back: "END" ends the answer
    await engine.wait_requests(2)
    engine.emit(engine.requests[1], b"f")
    engine.finish(engine.requests[1])
    await reading
    tokens = [i for step in decode_steps(kept) for gain in step.tokens for i in gain.token_ids]
    assert bytes(tokens) == b"Ef"


@pytest.mark.parametrize("n", [1, 2])
async def test_a_choice_that_had_all_its_tokens_ends_though_its_engine_never_said_so(n: int) -> None:
    engine = Engine()
    running = generation(engine, n=n)
    reader = Reader(running)
    await engine.wait_requests(1)
    engine.emit(engine.requests[0], b"123456789")
    engine.comes_back()
    engine.lost()
    if n == 2:
        await engine.wait_requests(2)
        assert engine.requests[1].first_choice == 1
        engine.finish(engine.requests[1], "length")
    await reader.task
    assert (reader.text, running.outcome, len(engine.requests)) == ("123456789", "length", n)
