"""What is known here of a remote engine's load and work: that of our own requests."""

from dataclasses import dataclass

from headway.core.messages import EngineStats
from headway.engine.remote_requests import RemoteRequest


@dataclass(slots=True)
class RemoteCounts:
    """Choices that wait and run, prompt tokens that wait, and totals of ended requests since the server was found."""

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_completion_tokens: int = 0

    def arrived(self, run: RemoteRequest) -> None:
        """A request came and waits for its turn."""
        self._wait(run, 1)

    def sent(self, run: RemoteRequest) -> None:
        """A request that waited has its turn."""
        self._wait(run, -1)
        self.num_running += run.request.n

    def ended(self, run: RemoteRequest) -> None:
        """A request ended, wherever it stood."""
        if run.sent_ns is None:
            self._wait(run, -1)
        else:
            self.num_running -= run.request.n
        usage = run.answer.usage
        self.num_prompt_tokens += usage.prompt_tokens
        self.num_cached_tokens += usage.cached_tokens
        self.num_completion_tokens += usage.completion_tokens

    def lost(self) -> None:
        """The server is gone: the next one's totals begin at zero."""
        self.num_prompt_tokens = self.num_cached_tokens = self.num_completion_tokens = 0

    def statistics(self, concurrency_limit: int) -> EngineStats:
        """Return the engine's report, as far as it can be made from here."""
        return EngineStats(
            concurrency_limit=concurrency_limit,
            num_running=self.num_running,
            num_waiting=self.num_waiting,
            num_waiting_tokens=self.num_waiting_tokens,
            prefix_query_tokens_total=self.num_prompt_tokens,
            prefix_hit_tokens_total=self.num_cached_tokens,
            prefill_tokens_total=self.num_prompt_tokens - self.num_cached_tokens,
            decode_tokens_total=self.num_completion_tokens,
        )

    def _wait(self, run: RemoteRequest, sign: int) -> None:
        self.num_waiting += sign * run.request.n
        self.num_waiting_tokens += sign * len(run.request.token_ids) * run.request.n
