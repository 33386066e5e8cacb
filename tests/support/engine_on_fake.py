"""An engine on the fake runner, and a reader that keeps what each request got."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headway.core.clock import ManualClock
from headway.core.config import SchedulerConfig
from headway.core.messages import (
    ChoiceFinished,
    Finished,
    FinishReason,
    StepOutputs,
    Submit,
    TokenLogprobs,
)
from headway.core.request import Pooling, Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.kv.tiers import Tiers
from headway.runner.fake import FakeRunner
from headway.runner.step import Runner

GREEDY = SamplingParams(temperature=0.0)


def make_engine(
    runner: Runner,
    clock: ManualClock | None = None,
    limits: SchedulerConfig | None = None,
    tiers: Tiers | None = None,
) -> Engine:
    return Engine(
        runner,
        limits or SchedulerConfig(),
        clock or ManualClock(),
        engine_info("fake", runner),
        tiers=tiers,
    )


def make_request(
    request_id: str,
    token_ids: Iterable[int],
    max_tokens: int = 4,
    sampling: SamplingParams = GREEDY,
    *,
    n: int = 1,
    stop_token_ids: tuple[int, ...] = (),
    num_resumed: int = 0,
    salt: str = "",
    pooling: Pooling | None = None,
    session: str | None = None,
    tenant: str = "",
) -> Request:
    return Request(
        request_id=request_id,
        token_ids=tuple(token_ids),
        sampling=sampling,
        max_tokens=max_tokens,
        n=n,
        stop_token_ids=stop_token_ids,
        num_resumed=num_resumed,
        salt=salt,
        pooling=pooling,
        session=session,
        tenant=tenant,
    )


@dataclass
class Received:
    """What the outside saw of an engine, by (request id, choice) and by request id."""

    tokens: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    logprobs: dict[tuple[str, int], list[TokenLogprobs]] = field(default_factory=dict)
    reasons: dict[tuple[str, int], FinishReason] = field(default_factory=dict)
    finished: dict[str, Finished] = field(default_factory=dict)

    def take(self, outputs: StepOutputs | None) -> None:
        """Note a step's outputs; nothing may come after an end, and no end may come twice."""
        if outputs is None:
            return
        for delta in outputs.deltas:
            key = (delta.request_id, delta.choice)
            assert key not in self.reasons, "tokens after a choice's end"
            self.tokens.setdefault(key, []).extend(delta.token_ids)
            self.logprobs.setdefault(key, []).extend(delta.logprobs)
        for choice in outputs.choices:
            self._end_choice(choice)
        for finished in outputs.finished:
            assert finished.request_id not in self.finished, "a second terminal event"
            self.finished[finished.request_id] = finished

    def _end_choice(self, choice: ChoiceFinished) -> None:
        key = (choice.request_id, choice.choice)
        assert key not in self.reasons, "a choice ended twice"
        assert choice.request_id not in self.finished, "a choice ended after its request"
        self.reasons[key] = choice.reason

    def of(self, request_id: str, choice: int = 0) -> list[int]:
        return self.tokens.get((request_id, choice), [])


def step_checked(engine: Engine, received: Received) -> StepOutputs | None:
    """Make one step, check every invariant and note the outputs."""
    outputs = engine.step()
    engine.check()
    received.take(outputs)
    return outputs


def run_until_idle(engine: Engine, received: Received | None = None, max_steps: int = 5_000) -> Received:
    received = received or Received()
    for _ in range(max_steps):
        if step_checked(engine, received) is None:
            return received
    raise AssertionError(f"the engine still has work after {max_steps} steps")


def run_alone(request: Request, *, block_size: int = 16) -> Received:
    """Run one request in an engine of its own with plenty of memory."""
    engine = make_engine(FakeRunner(num_blocks=512, block_size=block_size, max_context=8192))
    engine.handle(Submit(request))
    return run_until_idle(engine)


def assert_idle(engine: Engine) -> None:
    """Nothing runs, waits or holds a block."""
    engine.check()
    stats = engine.statistics()
    assert not engine.has_work
    assert (stats.num_running, stats.num_waiting, stats.num_waiting_tokens) == (0, 0, 0)
    assert stats.num_free_blocks == stats.num_blocks


def prompt(length: int, start: int = 0, vocab_size: int = 512) -> list[int]:
    """Return `length` token ids that repeat nowhere soon."""
    return [(start + index * 7) % vocab_size for index in range(length)]


def submit_all(engine: Engine, requests: Sequence[Request]) -> None:
    for request in requests:
        engine.handle(Submit(request))
