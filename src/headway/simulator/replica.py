"""One simulated replica: the engine itself, a runner that predicts, and a clock that the two share.

It does what `engine/service.py` does with a real one: takes what has arrived, makes a step, tells what came of it; only that
nobody waits. A step's outputs are seen when the step is over, and what arrives meanwhile is handled before the next.
"""

from collections.abc import Callable

from headway.core.clock import ManualClock
from headway.core.config import SchedulerConfig
from headway.core.messages import StepOutputs, ToEngine
from headway.engine.engine import Engine, engine_info
from headway.runner.step import RunnerInfo
from headway.simulator.costs import StepCost
from headway.simulator.runner import PredictingRunner
from headway.simulator.timeline import Kind, Timeline

IDLE_STEP_NS = 100_000
"""What a step takes that computes nothing: a real one takes about as long to find that out, and time must pass."""

Deliver = Callable[[StepOutputs], None]


class Replica:
    """Owns its engine and that engine's clock. `deliver` takes what a step gave, at the time it ended."""

    def __init__(
        self,
        timeline: Timeline,
        info: RunnerInfo,
        config: SchedulerConfig,
        cost: StepCost,
        deliver: Deliver,
        name: str = "simulated",
    ) -> None:
        """Begins idle. Raises ConfigError as `Engine` does."""
        self._clock = ManualClock(timeline.now_ns)
        runner = PredictingRunner(info, cost, self._clock)
        self.engine = Engine(runner, config, self._clock, engine_info(name, runner))
        self.num_open = 0
        """Requests that were sent here and are not over: what a router counts."""
        self._timeline = timeline
        self._deliver = deliver
        self._inbox: list[ToEngine] = []
        self._planned = False  # a step is, or the end of one

    def send(self, message: ToEngine) -> None:
        """Take a message now; the engine sees it before its next step."""
        self._inbox.append(message)
        if not self._planned:
            self._plan()

    def _plan(self) -> None:
        self._planned = True
        self._timeline.at(self._timeline.now_ns, Kind.STEP, self._step)

    def _step(self) -> None:
        clock, engine = self._clock, self.engine
        now_ns = self._timeline.now_ns
        clock.advance(now_ns - clock.now_ns())
        for message in self._inbox:
            engine.handle(message)
        self._inbox.clear()
        outputs = engine.step()
        if outputs is None or (clock.now_ns() == now_ns and not outputs.finished and engine.has_work):
            clock.advance(IDLE_STEP_NS)
        self._timeline.at(clock.now_ns(), Kind.DELIVER, lambda: self._end_step(outputs))

    def _end_step(self, outputs: StepOutputs | None) -> None:
        self._planned = False
        if outputs is not None:
            self._deliver(outputs)
        if not self._planned and (self._inbox or self.engine.has_work):
            self._plan()
