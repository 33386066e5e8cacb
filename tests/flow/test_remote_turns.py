"""What a remote engine's client asks of the gate: places, and bounds of what waits."""

import asyncio

import pytest

from headway.core.clock import ManualClock
from headway.core.errors import Displaced, HeadwayError, QueueFull
from headway.core.request import Request, ServiceClass
from headway.core.sampling import SamplingParams
from headway.flow.gradient import Gradient
from headway.flow.remote import RemoteGate
from headway.flow.remote_turns import RemoteTurns

pytestmark = pytest.mark.anyio


def request(num_tokens: int, service_class: ServiceClass = "normal") -> Request:
    return Request(
        request_id="r",
        token_ids=(1,) * num_tokens,
        sampling=SamplingParams(),
        max_tokens=1,
        service_class=service_class,
    )


def turns(max_waiting_tokens: int = 10) -> RemoteTurns:
    one = Gradient(limit=1, min_limit=1, max_limit=1)
    gate = RemoteGate(ManualClock(), gradient=one, lend_high="idle")
    return RemoteTurns(gate, max_waiting_tokens=max_waiting_tokens)


def never(error: HeadwayError) -> None:
    raise AssertionError(error)


async def wait(of: RemoteTurns, asked: Request) -> None:
    async with of.place(asked, never):
        pass


async def test_prompt_tokens_that_wait_are_bounded_by_class() -> None:
    t = turns()
    async with t.place(request(100), never):  # one that could never wait may go
        waiting = asyncio.create_task(wait(t, request(8)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await wait(t, request(3))
        high = asyncio.create_task(wait(t, request(3, "high")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        again = asyncio.create_task(wait(t, request(9)))
        await asyncio.sleep(0)
    await high
    await again


async def test_whoever_loses_his_place_is_told() -> None:
    t = turns()
    told: list[HeadwayError] = []
    lost = asyncio.Event()

    def end(error: HeadwayError) -> None:
        told.append(error)
        lost.set()

    async def low() -> None:
        async with t.place(request(1, "low"), end):
            await lost.wait()

    running = asyncio.create_task(low())
    await asyncio.sleep(0)
    await wait(t, request(1, "high"))
    await running
    assert [type(error) for error in told] == [Displaced]
    assert told[0].retry_after_s is not None
