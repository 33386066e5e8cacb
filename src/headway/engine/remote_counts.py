"""What is known here of a remote engine's load and work: that of our own requests."""

from collections.abc import Iterable
from dataclasses import dataclass

from headway.core.messages import EngineStats, Usage
from headway.engine.remote_requests import RemoteRequest


@dataclass(slots=True)
class RemoteCounts:
    """Totals of ended requests."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_completion_tokens: int = 0

    def ended(self, usage: Usage) -> None:
        """Count a request that ended."""
        self.num_prompt_tokens += usage.prompt_tokens
        self.num_cached_tokens += usage.cached_tokens
        self.num_completion_tokens += usage.completion_tokens

    def statistics(self, requests: Iterable[RemoteRequest]) -> EngineStats:
        """Return the engine's report, as far as it can be made from here."""
        num_running = num_waiting = num_waiting_tokens = 0
        for run in requests:
            if run.is_over:
                continue
            if run.sent_ns is None:
                num_waiting += run.request.n
                num_waiting_tokens += len(run.request.token_ids) * run.request.n
            else:
                num_running += run.request.n
        return EngineStats(
            num_running=num_running,
            num_waiting=num_waiting,
            num_waiting_tokens=num_waiting_tokens,
            prefix_query_tokens_total=self.num_prompt_tokens,
            prefix_hit_tokens_total=self.num_cached_tokens,
            prefill_tokens_total=self.num_prompt_tokens - self.num_cached_tokens,
            decode_tokens_total=self.num_completion_tokens,
        )
