"""A runner that computes nothing: a step takes the time that is predicted for it, and tokens are counted up.

Tokens are numbered in the order in which they are drawn, so that no two answers are alike by chance: an answer is found in
the prefix cache by the conversation that goes on with it and by nobody else. It holds no K and V, so blocks have no bytes.
"""

from headway.core.clock import ManualClock
from headway.runner.step import OutputKind, RunnerInfo, Step, StepResult
from headway.simulator.costs import StepCost


class PredictingRunner:
    """Implements `headway.runner.step.Runner`; owns nothing, moves `clock`."""

    def __init__(self, info: RunnerInfo, cost: StepCost, clock: ManualClock) -> None:
        """`clock` is the engine's own: a step is over when the clock says so."""
        self._info = info
        self._cost = cost
        self._clock = clock
        self._num_drawn = 0

    @property
    def info(self) -> RunnerInfo:
        """What is simulated."""
        return self._info

    def execute(self, step: Step) -> StepResult:
        """Let the predicted time pass and draw a token at each row; raises ValueError for hidden states, which it lacks."""
        if OutputKind.HIDDEN in step.output_kinds:
            raise ValueError("a simulation has no hidden states")
        self._clock.advance(self._cost.step_ns(step))
        first, size = self._num_drawn, self._info.vocab_size
        self._num_drawn += len(step.output_rows)
        return StepResult(tokens=[number % size for number in range(first, self._num_drawn)])

    def read_block(self, block: int) -> bytes:
        """Return nothing: a block holds nothing."""
        self._check(block)
        return b""

    def write_block(self, block: int, data: bytes) -> None:
        """Take what `read_block` gave; raises ValueError for anything else."""
        self._check(block)
        if data:
            raise ValueError("a simulated block holds nothing")

    def copy_block(self, source: int, target: int) -> None:
        """Copy nothing."""
        self._check(source)
        self._check(target)

    def bind_block(self, block: int) -> None:
        """Do nothing: a simulated block has no memory."""
        self._check(block)

    def _check(self, block: int) -> None:
        if not 0 <= block < self._info.num_blocks:
            raise IndexError(f"no block {block}")
