"""Load on an engine in virtual time: a fake runner whose steps take what a small CPU takes, and when each token came."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from headway.core.clock import NS_PER_MS, ManualClock
from headway.core.config import SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import Request, ServiceClass
from headway.engine.engine import Engine
from headway.runner.fake import FakeRunner
from headway.runner.step import Step
from support.engine_on_fake import Received, make_engine, make_request


def step_ns(step: Step) -> int:
    """About SmolLM2 on two cores: 4 ms, 0.6 ms a token, and what attention takes over long contexts."""
    num_tokens = len(step.tokens)
    attended = sum(
        (step.sequence_starts[b + 1] - step.sequence_starts[b]) * context
        for b, context in enumerate(step.context_lens)
    )
    return 4 * NS_PER_MS + num_tokens * 600_000 + attended * 50


def classed(
    request_id: str,
    token_ids: Iterable[int],
    max_tokens: int = 4,
    *,
    service_class: ServiceClass = "normal",
    tenant: str = "",
    ttft_ms: int | None = None,
    itl_ms: int | None = None,
) -> Request:
    return msgspec.structs.replace(
        make_request(request_id, token_ids, max_tokens),
        service_class=service_class,
        tenant=tenant,
        ttft_deadline_ns=None if ttft_ms is None else ttft_ms * NS_PER_MS,
        itl_target_ns=None if itl_ms is None else itl_ms * NS_PER_MS,
    )


@dataclass
class VirtualLoad:
    """An engine in virtual time. `token_ns`: request id → when each of its tokens was reported."""

    engine: Engine
    clock: ManualClock
    got: Received = field(default_factory=Received)
    arrived_ns: dict[str, int] = field(default_factory=dict)
    token_ns: dict[str, list[int]] = field(default_factory=dict)

    def submit(self, *requests: Request) -> None:
        for request in requests:
            self.arrived_ns[request.request_id] = self.clock.now_ns()
            self.engine.handle(Submit(request))

    def step(self) -> bool:
        """Make a step; return whether there was one."""
        outputs = self.engine.step()
        self.got.take(outputs)
        if outputs is None:
            return False
        for delta in outputs.deltas:
            times = self.token_ns.setdefault(delta.request_id, [])
            times += [self.clock.now_ns()] * len(delta.token_ids)
        return True

    def run(self, *, until_ns: int | None = None, before_step: Callable[[], None] = lambda: None) -> None:
        """Step until idle, or until a time."""
        while until_ns is None or self.clock.now_ns() < until_ns:
            before_step()
            if not self.step():
                return

    def ttft_ms(self, request_id: str) -> float:
        return (self.token_ns[request_id][0] - self.arrived_ns[request_id]) / NS_PER_MS

    def error(self, request_id: str) -> str | None:
        error = self.got.finished[request_id].error
        return None if error is None else error.code


def virtual_load(
    limits: SchedulerConfig | None = None,
    *,
    num_blocks: int = 4096,
    max_context: int = 8192,
    cost_ns: Callable[[Step], int] = step_ns,
    warm: bool = True,
) -> VirtualLoad:
    """`warm`: the engine has learnt already what its steps take."""
    clock = ManualClock(10**9)
    runner = FakeRunner(num_blocks=num_blocks, max_context=max_context, clock=clock, cost_ns=cost_ns)
    load = VirtualLoad(make_engine(runner, clock, limits or SchedulerConfig(max_draft_tokens=0)), clock)
    if warm:
        for number in range(4):
            load.submit(
                classed(f"warm-{number}", [(number * 131 + i * 17) % 512 for i in range(700)], 30, tenant="w")
            )
        load.run()
        clock.advance(10 * 10**9)
    return load
