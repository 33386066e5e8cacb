"""Any mix of classes, tenants, deadlines, cancellations, preemptions and restarts: every request ends exactly once.

Blocks balance after every step, nobody who is backlogged stays below its share, and what was delivered is the beginning of
what the request gets alone.
"""

import asyncio
from dataclasses import dataclass
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.clock import NS_PER_MS, NS_PER_S, ManualClock
from headway.core.config import EngineConfig, PolicyName, SchedulerConfig
from headway.core.messages import Finished, TokenDelta
from headway.core.request import Request, ServiceClass
from headway.engine.engine import Engine, engine_info
from headway.engine.inline import InlineEngineClient
from headway.runner.fake import FakeRunner
from support.engine_on_fake import assert_idle, make_request, prompt, run_alone
from support.virtual_load import step_ns

BLOCK_SIZE = 4


@dataclass(frozen=True)
class Event:
    """What happens before so many steps: a request, a cancellation of an earlier one, or the engine's death."""

    steps_before: int
    request: Request | None
    cancels: int | None
    crash: bool


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    drawn = []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["request"] * 6 + ["cancel"] * 2 + ["crash"]))
        request = None
        if kind == "request":
            request = msgspec.structs.replace(
                make_request(
                    f"r{number}",
                    prompt(draw(st.integers(1, 40)), draw(st.sampled_from([0, 0, 5]))),
                    draw(st.integers(1, 14)),
                    n=draw(st.sampled_from([1, 1, 2])),
                ),
                service_class=draw(st.sampled_from(get_args(ServiceClass))),
                tenant=draw(st.sampled_from("abc")),
                ttft_deadline_ns=draw(st.sampled_from([None, None, 0, 100 * NS_PER_MS, NS_PER_S])),
                itl_target_ns=draw(st.sampled_from([None, 10 * NS_PER_MS])),
            )
        drawn.append(
            Event(
                steps_before=draw(st.integers(0, 4)),
                request=request,
                cancels=draw(st.integers(0, 11)) if kind == "cancel" else None,
                crash=kind == "crash",
            )
        )
    return drawn


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    work=events(),
    policy=st.sampled_from(["slo", "slo", "slo", *get_args(PolicyName)]),
    num_blocks=st.integers(22, 30),
    max_num_seqs=st.integers(1, 5),
)
def test_every_request_ends_once(
    work: list[Event], policy: PolicyName, num_blocks: int, max_num_seqs: int
) -> None:
    limits = SchedulerConfig(policy=policy, max_num_seqs=max_num_seqs, max_prefill_tokens=24)
    ended = asyncio.run(run(work, limits, num_blocks))
    requests = [e.request for e in work if e.request is not None]
    assert sorted(ended) == sorted(request.request_id for request in requests)
    for request in requests:
        alone = run_alone(msgspec.structs.replace(request, ttft_deadline_ns=None), block_size=BLOCK_SIZE)
        tokens, finished = ended[request.request_id]
        for choice in range(request.n):
            expected = alone.of(request.request_id, choice)
            assert tokens[choice] == expected[: len(tokens[choice])]
            if finished.error is None and finished.usage.completion_tokens == sum(
                len(alone.of(request.request_id, c)) for c in range(request.n)
            ):
                assert tokens[choice] == expected


async def until_ready(client: InlineEngineClient) -> None:
    for _ in range(100):
        if client.state == "ready":
            return
        await asyncio.sleep(0)
    raise AssertionError(f"the engine is {client.state}")


async def run(
    work: list[Event], limits: SchedulerConfig, num_blocks: int
) -> dict[str, tuple[list[list[int]], Finished]]:
    """Return what each request got, choice by choice, and its terminal event."""
    clock = ManualClock(NS_PER_S)

    def build(_config: EngineConfig, _clock: object) -> Engine:
        runner = FakeRunner(num_blocks=num_blocks, block_size=BLOCK_SIZE, clock=clock, cost_ns=step_ns)
        return Engine(runner, limits, clock, engine_info("fake", runner))

    async def no_sleep(_delay_s: float) -> None:
        await asyncio.sleep(0)

    client = InlineEngineClient(EngineConfig(model="fake"), clock, factory=build, sleep=no_sleep)
    await client.start()
    ended: dict[str, tuple[list[list[int]], Finished]] = {}
    readers: list[asyncio.Task[None]] = []

    async def read(request: Request) -> None:
        tokens: list[list[int]] = [[] for _ in range(request.n)]
        async for batch in client.submit_nowait(request):
            for item in batch:
                if isinstance(item, TokenDelta):
                    tokens[item.choice] += item.token_ids
                elif isinstance(item, Finished):
                    assert request.request_id not in ended, "a second terminal event"
                    ended[request.request_id] = tokens, item

    async def step() -> bool:
        await until_ready(client)
        outputs = client.step()
        engine = client.engine
        assert isinstance(engine, Engine)
        engine.check()
        await asyncio.sleep(0)
        return outputs is not None

    for happening in work:
        for _ in range(happening.steps_before):
            await step()
        await until_ready(client)
        if happening.request is not None:
            readers.append(asyncio.create_task(read(happening.request)))
            await asyncio.sleep(0)
        if happening.cancels is not None:
            client.cancel_nowait(f"r{happening.cancels}")
        if happening.crash:
            client.crash()
    num_steps = 0
    while await step():
        num_steps += 1
        assert num_steps < 5_000, "no progress"
    await asyncio.gather(*readers)
    engine = client.engine
    assert isinstance(engine, Engine)
    assert_idle(engine)
    await client.close()
    return ended


@pytest.mark.parametrize("policy", get_args(PolicyName))
def test_every_policy_serves_a_crowd_in_little_memory(policy: PolicyName) -> None:
    work = [
        Event(
            steps_before=number % 3,
            request=msgspec.structs.replace(
                make_request(f"r{number}", prompt(5 + number % 30, number), 1 + number % 12),
                service_class=get_args(ServiceClass)[number % 3],
                tenant="abc"[number % 3],
                ttft_deadline_ns=3600 * NS_PER_S,
            ),
            cancels=None,
            crash=False,
        )
        for number in range(60)
    ]
    ended = asyncio.run(run(work, SchedulerConfig(policy=policy, max_num_seqs=8), 24))
    assert len(ended) == 60
    assert all(finished.error is None for _, finished in ended.values())
