"""An engine at work on a channel: builds it, says so, then takes messages between steps until the gateway ends.

It runs in whatever thread calls it and knows neither processes nor signals. It blocks only when there is nothing to do
(or the gateway does not read): an idle engine costs nothing, a busy one never waits for its gateway.
"""

import gc
import logging
from collections.abc import Callable
from typing import Protocol

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.errors import HeadwayError, InternalError
from headway.core.messages import EngineInfo, ErrorInfo, Ready, StepOutputs, ToEngine
from headway.engine.frames import Start, StartFailed, ToWorker
from headway.engine.transport import EngineChannel

logger = logging.getLogger(__name__)

FINISH_TIMEOUT_S = 5.0
"""A gateway that takes nothing for this long will not read the last messages either."""


class StepEngine(Protocol):
    """What is served: `headway.engine.engine.Engine`, or a stand-in."""

    @property
    def info(self) -> EngineInfo:
        """What the engine is."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether a step would do something (a refusal or a cancellation that must be reported is work too)."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether `Drain` was handled; together with `not has_work` the engine may end."""
        ...

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, when a step would do something that no message announced."""
        ...

    def handle(self, message: ToEngine) -> None:
        """Take one message; its effects show in the next step."""
        ...

    def prepare(self) -> bool:
        """Use a moment in which nobody waits, milliseconds of it; return whether there was anything to do."""
        ...

    def step(self) -> StepOutputs | None:
        """Run one step; None when it could do nothing, and will not until another message or a wake-up arrives."""
        ...


EngineFactory = Callable[[EngineConfig, Clock], StepEngine]


def run_engine(channel: EngineChannel, build: Callable[[], StepEngine]) -> bool:
    """Build an engine and serve it until its end; close the channel. Return whether it ended as it should.

    A failure to build goes to the gateway as `StartFailed`; a failure while running goes to the log, and the gateway
    sees the connection end.
    """
    try:
        engine = build_or_explain(build)
    except HeadwayError as error:
        channel.send(StartFailed(ErrorInfo.of(error)))
        channel.finish(FINISH_TIMEOUT_S)
        return False
    engine.wake_with(channel.open_waker())
    channel.send(Ready(engine.info))
    try:
        serve(engine, channel)
    except Exception:
        logger.exception("the engine failed")
        return False
    finally:
        channel.finish(FINISH_TIMEOUT_S)
    return True


def build_or_explain(build: Callable[[], StepEngine]) -> StepEngine:
    """Build an engine; raises HeadwayError only, a bug having gone to the log."""
    try:
        return build()
    except HeadwayError:
        raise
    except Exception as error:
        logger.exception("the engine could not be built")
        raise InternalError(f"The engine could not be built ({type(error).__name__}: {error}).") from error


def serve(engine: StepEngine, channel: EngineChannel) -> None:
    """Step `engine` and exchange messages until the gateway is gone, or has drained and nothing runs.

    What the engine can do ahead it does while there is nothing else to do.
    """
    while True:
        for message in channel.receive():
            engine.handle(_expect_to_engine(message))
        if channel.ended or (engine.is_draining and not engine.has_work):
            return
        outputs = engine.step() if engine.has_work and not channel.congested else None
        if outputs is None:
            channel.wait(0.0 if engine.prepare() else None)
        else:
            channel.send(outputs)


def freeze_heap() -> None:
    """Collect, then keep what the model's load made out of later collections: their pauses would fall into steps."""
    gc.collect()
    gc.freeze()


def _expect_to_engine(message: ToWorker) -> ToEngine:
    if isinstance(message, Start):
        raise ValueError("an engine is started once")
    return message
