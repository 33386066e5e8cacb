"""A small engine without model or scheduler, for tests of what lies between it and the gateway.

Every running choice gains one token a step (1000, 1001, …). A request longer than `PAUSE_AFTER` tokens stays running there
without work until it is cancelled, so that a test can hold it in mid-stream.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.errors import ModelFileError
from headway.core.messages import (
    Cancel,
    ChoiceFinished,
    Drain,
    EngineInfo,
    EngineStats,
    ErrorInfo,
    Finished,
    FinishReason,
    ReleaseSession,
    SessionReleased,
    StepOutputs,
    Submit,
    ToEngine,
    TokenDelta,
    Usage,
)
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.client import RequestEvent

PAUSE_AFTER = 8
CONFIG = EngineConfig(model="standin")
FACTORY = "support.standin_engine:build"


def child_env() -> dict[str, str]:
    """The environment in which a child imports what this process can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def request(request_id: str, max_tokens: int = 3, n: int = 1, num_prompt_tokens: int = 2) -> Request:
    return Request(
        request_id=request_id,
        token_ids=tuple(range(num_prompt_tokens)),
        sampling=SamplingParams(),
        max_tokens=max_tokens,
        n=n,
    )


async def read_until_paused(stream: AsyncIterator[tuple[RequestEvent, ...]]) -> None:
    """Read all that comes of a request longer than `PAUSE_AFTER` tokens."""
    left = PAUSE_AFTER
    while left:
        left -= sum(isinstance(event, TokenDelta) and event.choice == 0 for event in await anext(stream))


@dataclass
class _Running:
    request: Request
    num_tokens: int = 0
    open: set[int] = field(default_factory=set)

    @property
    def is_paused(self) -> bool:
        return self.num_tokens >= PAUSE_AFTER


class StandinEngine:
    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._running: dict[str, _Running] = {}
        self.is_draining = False
        self._choices: list[ChoiceFinished] = []
        self._finished: list[Finished] = []
        self._released: list[SessionReleased] = []
        self.num_steps = 0
        self.handled: list[ToEngine] = []

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            model=self._config.model,
            vocab_size=2000,
            max_context=64,
            num_blocks=4,
            block_size=16,
            system_fingerprint="standin",
        )

    @property
    def has_work(self) -> bool:
        return bool(self._finished or self._choices or self._released) or any(
            not running.is_paused for running in self._running.values()
        )

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Nothing happens here without a message."""

    def handle(self, message: ToEngine) -> None:
        self.handled.append(message)
        match message:
            case Submit(request) if request.token_ids == (666,):
                raise RuntimeError("a bug, asked for by a test")
            case Submit(request) if request.token_ids == (667,):
                os.write(int(sys.argv[-1]), b"\0\0\0\x01\xc1")  # garbage on the worker's own socket
            case Submit(request) if self.is_draining:
                error = ErrorInfo(code="draining", message="Draining.", retry_after_s=1.0)
                self._finish(_Running(request), error)
            case Submit(request):
                self._running[request.request_id] = _Running(request, open=set(range(request.n)))
            case Cancel(request_id=request_id, choice=choice, reason=reason):
                if running := self._running.get(request_id):
                    for index in sorted(running.open) if choice is None else [choice]:
                        self._end_choice(running, index, reason)
            case ReleaseSession(session="never answered"):
                pass
            case ReleaseSession(release_id=release_id, tenant=tenant):
                self._released.append(SessionReleased(release_id, found=tenant == "known"))
            case Drain():
                self.is_draining = True

    def prepare(self) -> bool:
        return False

    def step(self) -> StepOutputs | None:
        if not self.has_work:
            return None
        self.num_steps += 1
        deltas = []
        for running in list(self._running.values()):
            if running.is_paused:
                continue
            token = 1000 + running.num_tokens
            running.num_tokens += 1
            deltas += [
                TokenDelta(running.request.request_id, choice, (token,)) for choice in sorted(running.open)
            ]
            if running.num_tokens == running.request.max_tokens:
                for choice in sorted(running.open):
                    self._end_choice(running, choice, "length")
        outputs = StepOutputs(
            deltas=tuple(deltas),
            choices=tuple(self._choices),
            finished=tuple(self._finished),
            released=tuple(self._released),
            stats=EngineStats(num_running=len(self._running), steps_total=self.num_steps),
        )
        self._choices, self._finished, self._released = [], [], []
        return outputs

    def _end_choice(self, running: _Running, choice: int, reason: FinishReason) -> None:
        if choice not in running.open:
            return
        running.open.discard(choice)
        self._choices.append(ChoiceFinished(running.request.request_id, choice, reason))
        if not running.open:
            del self._running[running.request.request_id]
            self._finish(running, None)

    def _finish(self, running: _Running, error: ErrorInfo | None) -> None:
        usage = Usage(prompt_tokens=len(running.request.token_ids), completion_tokens=running.num_tokens)
        self._finished.append(Finished(request_id=running.request.request_id, usage=usage, error=error))


def set_up_logging(level: str, json: bool) -> None:
    print(f"log level {level}, json {json}", file=sys.stderr)


def build(config: EngineConfig, clock: Clock) -> StandinEngine:
    """The engine factory; the model's name chooses how it fails."""
    del clock
    if config.model == "missing":
        raise ModelFileError("The file 'missing' does not exist; check --model.")
    if config.model == "bug":
        raise RuntimeError("a bug, asked for by a test")
    if config.model == "exit":
        os._exit(9)
    if config.model == "slow":
        signal.pause()
    return StandinEngine(config)
