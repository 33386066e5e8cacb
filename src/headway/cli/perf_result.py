"""What `headway perf` measured, and the figures that are made of it: medians, and shares of the machine's limits."""

import statistics
from dataclasses import dataclass

from headway.core.config import EngineConfig
from headway.core.plan import ModelShape
from headway.runner.machine_limits import LimitRuns, Limits, PeakName
from headway.runner.measure import Measured, Workload
from headway.runner.roofline import kv_tokens, matmul_ops


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfResult:
    """What was run, what it measured, and what the machine did beside it."""

    config: EngineConfig
    """With the memory that was given to the KV cache."""
    workload: Workload
    shape: ModelShape
    isa: str
    threads: int
    weight_bytes: int
    step_weight_bytes: int
    """Of them, what one token's step reads."""
    kv_token_bytes: int
    system_fingerprint: str
    measured: Measured
    limits: Limits
    limit_runs: LimitRuns
    """In each repeat before the prompt, before each batch and after the last."""
    runs_at_once: int
    """How many there."""

    @property
    def decode_bytes(self) -> float:
        """What a step of one sequence reads at least: weights, scales included, and its keys and values."""
        context = self.workload.context + self.workload.output_tokens // 2
        return self.step_weight_bytes + self.kv_token_bytes * kv_tokens(self.shape, context=context)

    @property
    def prefill_tok_s(self) -> float:
        """The median of prompt tokens a second."""
        return self.workload.prompt_tokens / statistics.median(self.measured.prefill_s)

    def step_ms(self, batch: int) -> float:
        """Return the median of milliseconds a decode step took."""
        return statistics.median(self.measured.decode_s[batch]) * 1e3 / self.workload.output_tokens

    def decode_tok_s(self, batch: int) -> float:
        """Return the median of tokens a second, of all sequences together."""
        return batch * 1e3 / self.step_ms(batch)

    @property
    def peak_name(self) -> PeakName:
        """The limit that the products of these weights have: bf16 become float32 unless activations are bf16, too, and
        all others are multiplied as bytes."""
        if self.config.weights != "bf16":
            return "int8_gops"
        return "bf16_gflops" if self.config.activations == "bf16" else "f32_gflops"

    @property
    def prefill_share(self) -> float:
        """Which share of the peak the prompt's matrix products made of its time."""
        ops = matmul_ops(self.shape, num_tokens=self.workload.prompt_tokens)
        peak: float = getattr(self.limits, self.peak_name)
        return ops / statistics.median(self.measured.prefill_s) / 1e9 / peak

    @property
    def decode_share(self) -> float | None:
        """Which share of the read bandwidth one sequence's steps used; None where none was measured.

        The median over repeats, each compared with the best read just before and after it: with neighbours the bandwidth
        is half of what it was a minute ago.
        """
        if 1 not in self.workload.batches:
            return None
        slots_a_repeat, slot = len(self.workload.batches) + 2, 1 + list(self.workload.batches).index(1)
        shares = []
        for repeat, run_s in enumerate(self.measured.decode_s[1]):
            first = (repeat * slots_a_repeat + slot) * self.runs_at_once
            read_gb_s = max(self.limit_runs.read_gb_s[first : first + 2 * self.runs_at_once])
            shares.append(self.decode_bytes * self.workload.output_tokens / run_s / 1e9 / read_gb_s)
        return statistics.median(shares)
