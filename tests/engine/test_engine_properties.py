"""Any mix of arrivals, cancellations and memory pressure.

Blocks add up after each step, outputs are those of a request alone, every request ends once, everything comes to rest.
"""

from dataclasses import dataclass
from random import Random
from typing import get_args

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.messages import Cancel, Submit
from headway.core.request import Pooling, Request
from headway.core.sampling import SamplingParams
from headway.runner.fake import FakeRunner
from support.engine_on_fake import Received, assert_idle, make_engine, make_request, run_alone, step_checked

BLOCK_SIZE = 4

SAMPLING = st.sampled_from(
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=1.0, seed=2, presence_penalty=0.5),
        SamplingParams(temperature=0.0, repetition_penalty=1.1),
    ]
)
BEGINNINGS = ((), (7,) * 9, (7,) * 16, (3, 4, 5, 6) * 4)


@dataclass(frozen=True)
class Arrival:
    request: Request
    steps_before: int
    cancel_after: int | None
    cancelled_choice: int | None


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    drawn = []
    for number in range(draw(st.integers(1, 7))):
        beginning = draw(st.sampled_from(BEGINNINGS))
        tail = draw(st.lists(st.integers(0, 9), min_size=0 if beginning else 1, max_size=8))
        pooling: Pooling | None = draw(st.sampled_from([None] * 6 + [*get_args(Pooling)]))
        drawn.append(
            Arrival(
                request=make_request(
                    f"r{number}",
                    [*beginning, *tail],
                    draw(st.sampled_from([14, 13, 9, 2, 1])),
                    draw(SAMPLING),
                    n=1 if pooling else draw(st.sampled_from([1, 1, 1, 2, 3])),
                    stop_token_ids=tuple(draw(st.sampled_from([(), tuple(range(0, 512, 9))]))),
                    salt=draw(st.sampled_from(["", "", "other"])),
                    pooling=pooling,
                ),
                steps_before=draw(st.integers(0, 3)),
                cancel_after=draw(st.one_of(st.none(), st.integers(0, 12))),
                cancelled_choice=draw(st.sampled_from([None, None, 0, 1])),
            )
        )
    return drawn


LIMITS = st.builds(
    SchedulerConfig,
    max_num_seqs=st.integers(1, 6),
    max_prefill_tokens=st.integers(1, 24),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(work=arrivals(), limits=LIMITS, num_blocks=st.integers(10, 14))
def test_any_mix_ends_well(work: list[Arrival], limits: SchedulerConfig, num_blocks: int) -> None:
    runner = FakeRunner(num_blocks=num_blocks, block_size=BLOCK_SIZE)
    engine = make_engine(runner, limits=limits)
    got = Received()
    cancels: list[tuple[int, Cancel]] = []
    steps = 0

    def step() -> bool:
        nonlocal steps
        for due, cancel in cancels:
            if due == steps:
                engine.handle(cancel)
        steps += 1
        return step_checked(engine, got) is not None

    for arrival in work:
        for _ in range(arrival.steps_before):
            step()
        engine.handle(Submit(arrival.request))
        if arrival.cancel_after is not None:
            cancel = Cancel(request_id=arrival.request.request_id, choice=arrival.cancelled_choice)
            cancels.append((steps + arrival.cancel_after, cancel))
    # Progress: every choice needs at most a step per token, alone; nobody may need more than all of them one by one.
    bound = (
        steps + 20 + sum(a.request.n * 2 * (len(a.request.token_ids) + a.request.max_tokens) for a in work)
    )
    while step():
        assert steps <= bound * 4, "no progress"
    event(f"preempted: {engine.statistics().preemptions_total > 0}")
    assert_idle(engine)
    assert set(got.finished) == {arrival.request.request_id for arrival in work}
    for arrival in work:
        check_against_alone(arrival.request, got)


def check_against_alone(request: Request, got: Received) -> None:
    """What was delivered is what the request gets alone, or the beginning of it if it was cancelled."""
    alone = run_alone(request, block_size=BLOCK_SIZE)
    delivered = 0
    for choice in range(request.n):
        tokens, key = got.of(request.request_id, choice), (request.request_id, choice)
        delivered += len(tokens)
        if got.reasons[key] == "cancelled":
            assert tokens == alone.of(request.request_id, choice)[: len(tokens)]
        else:
            assert tokens == alone.of(request.request_id, choice)
            assert got.reasons[key] == alone.reasons[key]
    finished = got.finished[request.request_id]
    assert finished.usage.completion_tokens == delivered
    if request.pooling is not None:
        assert delivered == 0
        if got.reasons[request.request_id, 0] == "stop":
            assert finished.embedding is not None
            assert finished.embedding == alone.finished[request.request_id].embedding


@pytest.mark.parametrize("seed", range(12))
def test_a_crowd_in_little_memory_is_served_without_loss(seed: int) -> None:
    random = Random(seed)
    engine = make_engine(
        FakeRunner(num_blocks=16, block_size=BLOCK_SIZE),
        limits=SchedulerConfig(max_num_seqs=random.randint(2, 8), max_prefill_tokens=random.randint(1, 30)),
    )
    got = Received()
    requests = []
    for number in range(25):
        beginning = random.choice(BEGINNINGS)
        tail = [random.randrange(10) for _ in range(random.randint(1, 12))]
        sampling = SamplingParams(temperature=random.choice([0.0, 1.0]), seed=number)
        requests.append(make_request(f"r{number}", [*beginning, *tail], random.randint(8, 24), sampling))
        engine.handle(Submit(requests[-1]))
        for _ in range(random.randint(0, 3)):
            step_checked(engine, got)
    while step_checked(engine, got) is not None:
        assert engine.statistics().steps_total < 5_000, "no progress"
    assert engine.statistics().preemptions_total > 0
    assert_idle(engine)
    for request in requests:
        check_against_alone(request, got)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    beginning=st.sampled_from(BEGINNINGS[1:]),
    sampling=SAMPLING,
    cut=st.integers(0, 12),
    limits=LIMITS,
    seed_cache=st.booleans(),
)
def test_any_resumption_goes_on_with_the_same_tokens(
    beginning: tuple[int, ...], sampling: SamplingParams, cut: int, limits: SchedulerConfig, seed_cache: bool
) -> None:
    original = make_request("r", beginning, 13, sampling)
    engine = make_engine(FakeRunner(num_blocks=32, block_size=BLOCK_SIZE), limits=limits)
    whole = run_alone(original, block_size=BLOCK_SIZE).of("r")
    if seed_cache:
        engine.handle(Submit(original))
    resumed = make_request("again", [*beginning, *whole[:cut]], 13 - cut, sampling, num_resumed=cut)
    engine.handle(Submit(resumed))
    got = Received()
    while step_checked(engine, got) is not None:
        pass
    assert got.of("again") == whole[cut:]
