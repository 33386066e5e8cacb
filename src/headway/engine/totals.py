"""The engine's counters, and the wait they predict. It knows no sequences; the engine tells it what happened."""

from dataclasses import dataclass

from headway.core.clock import NS_PER_S
from headway.core.messages import EngineStats

MIN_WAIT_S = 1.0
MAX_WAIT_S = 60.0
"""Bounds of Retry-After: it is in whole seconds (RFC 9110, 10.2.3), and after a minute the prediction is worth nothing."""

FIRST_MEAN_OUTPUT = 128.0
"""Tokens of an answer before any was seen."""
MEAN_OUTPUT_GAIN = 0.05
"""Of the latest answer: half of what is known is forgotten after 14."""


@dataclass(slots=True)
class Totals:
    """Counts over the engine's life."""

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    preemptions: int = 0
    busy_ns: int = 0
    step_ns: int = 0
    runner_ns: int = 0
    mean_output: float = FIRST_MEAN_OUTPUT
    """Tokens of recent answers, the latest counting most."""

    def count_prefix(self, num_tokens: int, num_cached: int) -> None:
        """A request started; the prefix cache gave `num_cached` of its `num_tokens`."""
        self.prefix_query_tokens += num_tokens
        self.prefix_hit_tokens += num_cached

    def count_computed(self, num_tokens: int, decoding: bool) -> None:
        """A sequence computed `num_tokens`."""
        if decoding:
            self.decode_tokens += num_tokens
        else:
            self.prefill_tokens += num_tokens

    def count_drafted(self, num_drafted: int, num_right: int) -> None:
        """A step carried `num_drafted` draft tokens of a sequence, of which the first `num_right` were right."""
        self.drafted_tokens += num_drafted
        self.accepted_tokens += num_right

    def count_step(self, step_ns: int, runner_ns: int) -> None:
        """A step took `step_ns`, of which the runner took `runner_ns`."""
        self.steps += 1
        self.busy_ns += step_ns
        self.step_ns = step_ns
        self.runner_ns = runner_ns

    def count_answer(self, num_tokens: int) -> None:
        """A choice ended after `num_tokens`."""
        self.mean_output += MEAN_OUTPUT_GAIN * (num_tokens - self.mean_output)

    def expected_wait_s(self, num_queued_tokens: int) -> float:
        """Return when the queue will have moved, in whole seconds: queued tokens over prompt tokens per busy second."""
        wait_s = MIN_WAIT_S
        if self.prefill_tokens:
            wait_s = num_queued_tokens * self.busy_ns / self.prefill_tokens / NS_PER_S
        return float(round(min(MAX_WAIT_S, max(MIN_WAIT_S, wait_s))))

    def statistics(
        self,
        *,
        num_running: int,
        num_waiting: int,
        num_waiting_tokens: int,
        num_blocks: int,
        num_free_blocks: int,
        num_cached_blocks: int,
        step_prediction_error: float,
    ) -> EngineStats:
        """Return the counters together with what the engine holds now."""
        return EngineStats(
            num_running=num_running,
            num_waiting=num_waiting,
            num_waiting_tokens=num_waiting_tokens,
            num_blocks=num_blocks,
            num_free_blocks=num_free_blocks,
            num_cached_blocks=num_cached_blocks,
            steps_total=self.steps,
            prefill_tokens_total=self.prefill_tokens,
            decode_tokens_total=self.decode_tokens,
            drafted_tokens_total=self.drafted_tokens,
            accepted_tokens_total=self.accepted_tokens,
            prefix_query_tokens_total=self.prefix_query_tokens,
            prefix_hit_tokens_total=self.prefix_hit_tokens,
            preemptions_total=self.preemptions,
            step_ns=self.step_ns,
            runner_ns=self.runner_ns,
            step_prediction_error=step_prediction_error,
        )
