"""The simulated engine is the engine: the same plan, step by step, as on the fake runner with the same costs."""

import random
from functools import partial

from headway.core.clock import ManualClock
from headway.core.config import SchedulerConfig
from headway.core.messages import Cancel, StepOutputs, Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.runner.fake import FakeRunner
from headway.runner.step import RunnerInfo, Step
from headway.simulator.replica import Replica
from headway.simulator.timeline import Kind, Timeline
from support.simulated import MS, Cost

INFO = RunnerInfo(vocab_size=512, max_context=1024, num_blocks=24, block_size=16, system_fingerprint="fake")
LIMITS = SchedulerConfig(max_draft_tokens=0, max_num_seqs=4, max_prefill_tokens=48)


def cost_ns(step: Step) -> int:
    return MS + 10_000 * len(step.tokens) + 100 * sum(step.context_lens)


def requests(seed: int = 1) -> list[tuple[int, Request]]:
    draw = random.Random(seed)
    prefix = tuple(draw.randrange(512) for _ in range(48))
    arriving = sorted(draw.randrange(60 * MS) for _ in range(20))
    return [
        (
            at_ns,
            Request(
                request_id=str(number),
                token_ids=(*prefix[: draw.choice((0, 32, 48))], *(draw.randrange(512) for _ in range(40))),
                sampling=SamplingParams(temperature=0.0),
                max_tokens=draw.randrange(1, 30),
                arrival_ns=at_ns,
                service_class=draw.choice(("high", "normal", "low")),
            ),
        )
        for number, at_ns in enumerate(arriving)
    ]


def told(outputs: StepOutputs) -> tuple[object, ...]:
    """What can be compared: everything but which tokens were drawn."""
    deltas = [(delta.request_id, len(delta.token_ids)) for delta in outputs.deltas]
    return deltas, outputs.choices, outputs.finished, outputs.stats


def on_the_fake_runner() -> list[tuple[int, object]]:
    """As a process runs it: what has arrived is handled between two steps."""
    clock = ManualClock()
    runner = FakeRunner(
        num_blocks=INFO.num_blocks,
        vocab_size=INFO.vocab_size,
        max_context=INFO.max_context,
        clock=clock,
        cost_ns=cost_ns,
    )
    engine = Engine(runner, LIMITS, clock, engine_info("simulated", runner))
    found: list[tuple[int, object]] = []
    coming = requests()
    while coming or engine.has_work:
        if not engine.has_work and coming[0][0] > clock.now_ns():
            clock.advance(coming[0][0] - clock.now_ns())
        while coming and coming[0][0] <= clock.now_ns():
            engine.handle(Submit(coming.pop(0)[1]))
        outputs = engine.step()
        assert outputs is not None
        engine.check()
        found.append((clock.now_ns(), told(outputs)))
    return found


def test_the_order_of_events_is_the_fake_runners() -> None:
    timeline = Timeline()
    found: list[tuple[int, object]] = []
    replica = Replica(
        timeline, INFO, LIMITS, Cost(cost_ns), lambda outputs: found.append((timeline.now_ns, told(outputs)))
    )
    for at_ns, request in requests():
        timeline.at(at_ns, Kind.ARRIVE, partial(replica.send, Submit(request)))
    timeline.run()
    expected = on_the_fake_runner()
    assert any("preemptions_total" in repr(outputs) for _, outputs in expected)
    assert found == expected
    replica.engine.check()


def test_a_request_that_is_cancelled_while_a_step_runs_ends_before_the_next() -> None:
    timeline = Timeline()
    found: list[tuple[int, StepOutputs]] = []
    replica = Replica(
        timeline,
        INFO,
        LIMITS,
        Cost(lambda _: 10 * MS),
        lambda outputs: found.append((timeline.now_ns, outputs)),
    )
    request = requests()[0][1]
    timeline.at(0, Kind.ARRIVE, lambda: replica.send(Submit(request)))
    timeline.at(15 * MS, Kind.ARRIVE, lambda: replica.send(Cancel(request_id=request.request_id)))
    timeline.run()
    assert [at_ns for at_ns, outputs in found if outputs.finished] == [20 * MS]
    assert not replica.engine.has_work
