"""How much prompt a step carries: as much as keeps the running streams' inter-token target, by the predicted time (X2).

A chunk of n tokens at context c takes n * p + (n * c + n * n / 2) * a: p for a token, a for each cached token it attends to.
The largest n within what the target leaves is the root of that. Aimed is below the target by what predictions miss. Chunked
prefill: Sarathi-Serve, arXiv 2403.02310; there the chunk is a constant found beforehand.
"""

from collections.abc import Iterable, Sequence
from math import ceil, sqrt

from headway.core.clock import NS_PER_S
from headway.core.config import SchedulerConfig
from headway.engine.step_time import Load, StepTime
from headway.engine.view import Chunk, S, SequenceView

MIN_CHUNK = 16
"""A step carries so many prompt tokens whatever its target: so a prompt of n tokens waits for n / 16 steps at most."""
MISS_FACTOR = 2.0
"""Aimed is this many mean errors below the target: about one step in twenty exceeds it if errors are normal."""
MIN_AIM = 0.7
"""Of the target: with worse predictions a smaller chunk helps no more."""


class Room:
    """What is left of a step for prompts. Owned by one call of `plan`."""

    __slots__ = ("_left_ns", "_num_taken", "_step_time", "_tokens")

    def __init__(self, step_time: StepTime, load: Load, target_ns: int | None, max_tokens: int) -> None:
        self._step_time = step_time
        self._tokens = min(max_tokens, step_time.max_chunk)
        self._num_taken = 0
        self._left_ns: float | None = None
        if target_ns is not None and step_time.is_known:
            self._left_ns = aim_ns(target_ns, step_time) - step_time.of(load)

    def __bool__(self) -> bool:
        """Whether another chunk would have a token."""
        if self._tokens <= 0:
            return False
        return self._left_ns is None or self._left_ns > 0 or self._num_taken < MIN_CHUNK

    def part(self, share: float) -> "Room":
        """Return room for what may take only `share` of this one."""
        part = Room.__new__(Room)
        part._step_time, part._num_taken = self._step_time, 0
        part._tokens = ceil(self._tokens * share)
        part._left_ns = None if self._left_ns is None else self._left_ns * share
        return part

    def fit(self, context: int, num_tokens: int) -> int:
        """Return how many of a prompt's next `num_tokens` tokens have room, `context` tokens of it being cached."""
        most = min(num_tokens, self._tokens)
        if self._left_ns is None:
            return most
        return min(most, max(self._fitting(context), MIN_CHUNK - self._num_taken, 0))

    def take(self, context: int, num_tokens: int) -> None:
        """The step carries these tokens."""
        self._tokens -= num_tokens
        self._num_taken += num_tokens
        if self._left_ns is not None:
            self._left_ns -= _chunk_ns(self._step_time, context, num_tokens)

    def _fitting(self, context: int) -> int:
        assert self._left_ns is not None
        if self._left_ns <= 0:
            return 0
        attended = self._step_time.per_attended_ns
        linear = self._step_time.per_prompt_token_ns + attended * context
        if attended <= 0:
            return int(self._left_ns / linear) if linear > 0 else self._tokens
        return int((sqrt(linear * linear + 2 * attended * self._left_ns) - linear) / attended)


def attended(context: int, num_tokens: int) -> int:
    """Return how many tokens a chunk attends to, summed over its tokens."""
    return num_tokens * context + num_tokens * (num_tokens + 1) // 2


def decode_load(chunks: Sequence[Chunk[S]]) -> Load:
    """Return what decoding sequences make a step carry."""
    rows = context = 0
    for chunk in chunks:
        num_rows = chunk.num_tokens + len(chunk.draft)
        rows += num_rows
        context += num_rows * chunk.sequence.num_computed
    return Load(0, rows, context, 0)


def load_of(chunks: Sequence[Chunk[S]]) -> Load:
    """Return what a whole step carries."""
    prompts = [chunk for chunk in chunks if not chunk.sequence.is_decoding]
    decode = decode_load([chunk for chunk in chunks if chunk.sequence.is_decoding])
    return decode._replace(
        prompt=sum(chunk.num_tokens for chunk in prompts),
        attended=sum(attended(chunk.sequence.num_computed, chunk.num_tokens) for chunk in prompts),
    )


def target_ns(limits: SchedulerConfig, decoding: Iterable[SequenceView]) -> int | None:
    """Return what the step may take: the configured target, or less where a running stream asks for less."""
    targets = [target for sequence in decoding if (target := sequence.itl_target_ns) is not None]
    if limits.itl_target_s is not None:
        targets.append(int(limits.itl_target_s * NS_PER_S))
    return min(targets, default=None)


def aim_ns(target_ns: int, step_time: StepTime) -> float:
    """Return the predicted duration that keeps the target nearly always."""
    return max(MIN_AIM, 1 - MISS_FACTOR * step_time.error) * target_ns


def ns_per_prompt_token(step_time: StepTime, load: Load, target_ns: int | None, max_tokens: int) -> float:
    """Return how long a prompt token takes while steps carry `load` besides, its own share of them; 0 = not known."""
    if not step_time.is_known:
        return 0.0
    num_tokens = Room(step_time, load, target_ns, max_tokens).fit(0, max_tokens)
    if not num_tokens:
        return 0.0
    return step_time.of(load._replace(prompt=num_tokens, attended=attended(0, num_tokens))) / num_tokens


def _chunk_ns(step_time: StepTime, context: int, num_tokens: int) -> float:
    return (
        num_tokens * step_time.per_prompt_token_ns + attended(context, num_tokens) * step_time.per_attended_ns
    )
