"""Whether a request may enter the queue: pure decisions, made once on arrival.

Everything that would make a whole step fail later (ids outside the vocabulary, numbers that fit no array) is refused here,
so that a request can only ever harm itself. It knows no blocks in use: what can never fit is refused, what only has to
wait is not.
"""

from dataclasses import dataclass

from headway.core.config import SchedulerConfig
from headway.core.errors import ContextExceeded, Draining, HeadwayError, InvalidRequest, QueueFull
from headway.core.messages import EngineInfo
from headway.core.request import Request

MAX_CHOICES = 128
"""OpenAI's limit on `n`; each choice is a sequence of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """What waits at the moment: requests that have not started, their prompt tokens, and the expected wait."""

    num_requests: int
    num_tokens: int
    wait_s: float
    draining: bool


def refusal(
    request: Request, info: EngineInfo, limits: SchedulerConfig, load: QueueLoad
) -> HeadwayError | None:
    """Return why `request` cannot be accepted, or None if it can."""
    return _malformed(request, info) or _too_long(request, info) or _no_room(request, limits, load)


def _malformed(request: Request, info: EngineInfo) -> HeadwayError | None:
    sampling = request.sampling
    if not request.token_ids:
        return InvalidRequest("The prompt is empty; send at least one token.", param="prompt")
    if min(request.token_ids) < 0 or max(request.token_ids) >= info.vocab_size:
        message = f"The prompt has a token id outside 0 to {info.vocab_size - 1}; use this model's tokenizer."
        return InvalidRequest(message, param="prompt")
    if any(not 0 <= token < info.vocab_size for token, _ in sampling.logit_bias):
        message = (
            f"logit_bias names a token id outside 0 to {info.vocab_size - 1}; use this model's tokenizer."
        )
        return InvalidRequest(message, param="logit_bias")
    if request.max_tokens < 1:
        return InvalidRequest("max_tokens must be at least 1.", param="max_tokens")
    if not 1 <= request.n <= MAX_CHOICES:
        return InvalidRequest(f"n must be between 1 and {MAX_CHOICES}.", param="n")
    if not 0 <= request.num_resumed < len(request.token_ids):
        return InvalidRequest("num_resumed must leave at least one prompt token.", param="num_resumed")
    if not 0 <= sampling.seed < 2**64:
        return InvalidRequest("seed must be between 0 and 2**64 - 1.", param="seed")
    if not 0 <= sampling.top_k < 2**31:
        return InvalidRequest("top_k must be 0 (off) or the number of tokens to keep.", param="top_k")
    if sampling.num_logprobs is not None and not 0 <= sampling.num_logprobs <= info.vocab_size:
        return InvalidRequest(f"logprobs must be between 0 and {info.vocab_size}.", param="logprobs")
    return None


def _too_long(request: Request, info: EngineInfo) -> HeadwayError | None:
    num_prompt, num_total = len(request.token_ids), len(request.token_ids) + request.max_tokens
    lengths = f"This request needs {num_total} tokens: {num_prompt} in the prompt and {request.max_tokens} for max_tokens"
    if num_total > info.max_context:
        return ContextExceeded(
            f"{lengths}. The model's context is {info.max_context} tokens; shorten the prompt or lower max_tokens.",
            param="max_tokens" if num_prompt < info.max_context else "prompt",
        )
    num_slots = info.num_blocks * info.block_size
    if num_total - 1 > num_slots:  # the last token is drawn but never computed
        return ContextExceeded(
            f"{lengths}. The KV cache holds {num_slots} tokens; shorten the prompt, lower max_tokens, "
            "or serve with more KV memory.",
            param="max_tokens" if num_prompt < num_slots else "prompt",
        )
    return None


def _no_room(request: Request, limits: SchedulerConfig, load: QueueLoad) -> HeadwayError | None:
    if load.draining:
        return Draining("The server is shutting down; send the request to another one, or again later.")
    if load.num_requests >= limits.max_queued_requests:
        return QueueFull(
            f"{load.num_requests} requests wait already; retry in {load.wait_s:.0f} s.",
            retry_after_s=load.wait_s,
        )
    if load.num_requests and load.num_tokens + len(request.token_ids) > limits.max_queued_tokens:
        return QueueFull(
            f"Requests with {load.num_tokens} prompt tokens wait already; retry in {load.wait_s:.0f} s.",
            retry_after_s=load.wait_s,
        )
    return None
