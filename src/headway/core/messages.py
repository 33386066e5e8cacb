"""What crosses between the gateway's `EngineClient` and the engine: frozen, serialisable, nothing else.

To the engine:   Submit, Cancel, ReleaseSession, Drain
From the engine: Ready (once), StepOutputs (one per step: every token, terminal event and the statistics of that step)

Every accepted request ends in exactly one `Finished`, whatever happens: all choices done, cancelled, refused, failed.
"""

from typing import Literal

import msgspec

from headway.core.errors import HeadwayError, error_from_code
from headway.core.request import Request

FinishReason = Literal["stop", "length", "cancelled", "error"]
"""Why a choice ended. "stop": a stop token, or the gateway matched a stop string and cancelled with that reason."""


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Ask for a request to be run. Refusals come back as `Finished` with an error."""

    request: Request


class Cancel(msgspec.Struct, frozen=True, tag="cancel", kw_only=True):
    """End a request, or one of its choices, within one step. Idempotent; unknown ids are ignored.

    choice   None = every choice; else only that one (its stop string matched)
    reason   what the choice's `ChoiceFinished` reports
    """

    request_id: str
    choice: int | None = None
    reason: Literal["cancelled", "stop"] = "cancelled"


class ReleaseSession(msgspec.Struct, frozen=True, tag="release_session", kw_only=True):
    """End a conversation: what only it keeps in the KV cache is given back, once its running requests have finished.

    Answered by a `SessionReleased` with the same `release_id`.
    """

    release_id: int
    tenant: str
    session: str


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Refuse new requests, finish what runs, then end."""


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities of one generated token: its own, and the most likely ones (id, logprob), best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class TokenDelta(msgspec.Struct, frozen=True, array_like=True):
    """Tokens one choice gained in a step (more than one with speculation)."""

    request_id: str
    choice: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


class ChoiceFinished(msgspec.Struct, frozen=True, array_like=True):
    """One choice ended."""

    request_id: str
    choice: int
    reason: FinishReason


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a request used. `cached_tokens`: prompt tokens whose KV the prefix cache gave (first choice, first pass)."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A HeadwayError in transit."""

    code: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None

    @classmethod
    def of(cls, error: HeadwayError) -> "ErrorInfo":
        """Return `error` in the form that crosses a process boundary."""
        return cls(
            code=error.code, message=error.message, param=error.param, retry_after_s=error.retry_after_s
        )

    def to_error(self) -> HeadwayError:
        """Return the error again, of the class that its code names."""
        return error_from_code(self.code, self.message, param=self.param, retry_after_s=self.retry_after_s)


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The one terminal event of a request, after every choice's `ChoiceFinished`.

    Times are monotonic nanoseconds of the engine's clock; None = that stage was not reached.
    embedding: of a request with `pooling`, float32 little-endian (hidden_size,), of length 1 (Euclidean).
    """

    request_id: str
    usage: Usage
    embedding: bytes | None = None
    error: ErrorInfo | None = None
    num_preemptions: int = 0
    queued_ns: int | None = None
    first_scheduled_ns: int | None = None
    first_token_ns: int | None = None
    finished_ns: int | None = None


class SessionReleased(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a `ReleaseSession`. `found`: whether there was such a conversation."""

    release_id: int
    found: bool


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of the engine after a step; `*_total` only grow while the process lives."""

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_tokens: int = 0
    concurrency_limit: int = 0
    """Requests that a remote engine is sent at once; 0 = the engine decides itself what runs."""
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_cached_blocks: int = 0
    steps_total: int = 0
    prefill_tokens_total: int = 0
    decode_tokens_total: int = 0
    drafted_tokens_total: int = 0
    accepted_tokens_total: int = 0
    prefix_query_tokens_total: int = 0
    prefix_hit_tokens_total: int = 0
    preemptions_total: int = 0
    step_ns: int = 0
    runner_ns: int = 0
    step_prediction_error: float = 0.0
    """Mean of the last steps' |measured - predicted| / measured."""
    num_sessions_active: int = 0
    num_sessions_idle: int = 0
    num_sessions_parked: int = 0
    host_kv_bytes: int = 0
    disk_kv_bytes: int = 0
    host_offloaded_blocks_total: int = 0
    host_offloaded_bytes_total: int = 0
    host_restored_blocks_total: int = 0
    host_restored_bytes_total: int = 0
    disk_offloaded_blocks_total: int = 0
    disk_offloaded_bytes_total: int = 0
    disk_restored_blocks_total: int = 0
    disk_restored_bytes_total: int = 0
    lost_kv_blocks_total: int = 0


class StepOutputs(msgspec.Struct, frozen=True, tag="step", kw_only=True):
    """Everything one step produced. Per request the order is deltas, then choices, then the terminal event."""

    deltas: tuple[TokenDelta, ...] = ()
    choices: tuple[ChoiceFinished, ...] = ()
    finished: tuple[Finished, ...] = ()
    released: tuple[SessionReleased, ...] = ()
    stats: EngineStats


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine is: fixed while it lives."""

    model: str
    vocab_size: int
    max_context: int
    num_blocks: int
    block_size: int
    system_fingerprint: str
    repeats_exactly: bool = True


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The engine has loaded its model and takes requests."""

    info: EngineInfo


ToEngine = Submit | Cancel | ReleaseSession | Drain
FromEngine = Ready | StepOutputs
