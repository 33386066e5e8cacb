"""Runs requests on an engine and keeps every bit that batch invariance (X1) promises: tokens, logits, KV blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from headway.core.clock import ManualClock
from headway.core.config import SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import Request
from headway.engine.engine import Engine, engine_info
from headway.engine.grammars import Grammars
from headway.runner.native_runner import NativeRunner
from headway.runner.step import RunnerInfo, Step, StepResult
from support.engine_on_fake import Received


class LogitsRecorder:
    """A runner that computes every step twice: once to keep the logits, then to sample.

    Rows are told apart by their seed, so each request of a run needs its own.
    """

    def __init__(self, runner: NativeRunner) -> None:
        self._runner = runner
        self.logits: dict[tuple[int, int], bytes] = {}  # (seed, position) → float32 (vocab_size,)

    @property
    def info(self) -> RunnerInfo:
        return self._runner.info

    def execute(self, step: Step) -> StepResult:
        if step.sampling is not None:
            size = 4 * self.info.vocab_size
            logits = self._runner.forward(step)
            for row, key in enumerate(zip(step.sampling.seeds, step.sampling.positions, strict=True)):
                self.logits[key] = logits[row * size : (row + 1) * size]
        return self._runner.execute(step)

    def read_block(self, block: int) -> bytes:
        return self._runner.read_block(block)

    def write_block(self, block: int, data: bytes) -> None:
        self._runner.write_block(block, data)

    def copy_block(self, source: int, target: int) -> None:
        self._runner.copy_block(source, target)

    def bind_block(self, block: int) -> None:
        self._runner.bind_block(block)


@dataclass
class Bits:
    """What one request got. Logits by position, blocks by index; only blocks whose every token was computed."""

    tokens: list[int]
    logits: dict[int, bytes]
    blocks: list[bytes]
    num_preemptions: int
    cached_tokens: int
    num_accepted: int
    """Draft tokens that were right, over all requests."""


@dataclass
class Run:
    """One way to serve `target`: what arrives before and with it, and the limits."""

    target: Request
    before: Sequence[Request] = ()
    beside: Sequence[Request] = ()
    limits: SchedulerConfig = field(default_factory=lambda: SchedulerConfig(max_prefill_tokens=4096))
    num_blocks: int | None = None


def record(runner: NativeRunner, run: Run, grammars: Grammars | None = None) -> Bits:
    """Serve `run.before` to the end, then `run.beside` and the target together; return the target's bits."""
    recorder = LogitsRecorder(runner)
    info = engine_info("fake", recorder)
    if run.num_blocks is not None:
        info = msgspec.structs.replace(info, num_blocks=run.num_blocks)
    engine = Engine(recorder, run.limits, ManualClock(), info, grammars)
    received = Received()
    for request in run.before:
        engine.handle(Submit(request))
        while engine.has_work:
            received.take(engine.step())
    for request in (*run.beside, run.target):
        engine.handle(Submit(request))
    target_id = run.target.request_id
    blocks: list[bytes] = []
    while target_id not in received.finished:
        received.take(engine.step())
        if target_id not in received.finished:
            # The last token drawn is not computed yet.
            num_computed = len(run.target.token_ids) + len(received.of(target_id)) - 1
            if received.of(target_id) and (table := engine.block_table(target_id)):
                full = table[: num_computed // info.block_size]
                blocks = [recorder.read_block(block) for block in full]
    engine.check()
    finished = received.finished[target_id]
    assert finished.error is None
    return Bits(
        tokens=received.of(target_id),
        logits={pos: row for (seed, pos), row in recorder.logits.items() if seed == run.target.sampling.seed},
        blocks=blocks,
        num_preemptions=finished.num_preemptions,
        cached_tokens=finished.usage.cached_tokens,
        num_accepted=engine.statistics().accepted_tokens_total,
    )


def assert_same_bits(bits: Bits, reference: Bits, num_resumed: int = 0) -> None:
    """Tokens, logits and blocks are those of `reference`, of which the first `num_resumed` tokens came with the prompt."""
    assert bits.tokens == reference.tokens[num_resumed:]
    positions = sorted(reference.logits)[num_resumed:]
    assert sorted(bits.logits) == positions
    assert [p for p in positions if bits.logits[p] != reference.logits[p]] == [], (
        "logits differ at these positions"
    )
    assert len(bits.blocks) == len(reference.blocks)
    differing = [i for i, (a, b) in enumerate(zip(bits.blocks, reference.blocks, strict=True)) if a != b]
    assert differing == [], "KV blocks differ at these indices"
