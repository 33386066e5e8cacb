"""Whether a request may enter the queue: pure decisions, made once on arrival.

Everything that would make a whole step fail later (ids outside the vocabulary, numbers that fit no array) is refused here,
so that a request can only ever harm itself. It knows no blocks in use: what can never fit is refused, what only has to
wait is not.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from headway.core.config import SchedulerConfig
from headway.core.errors import ContextExceeded, Draining, HeadwayError, InvalidRequest, QueueFull
from headway.core.messages import EngineInfo
from headway.core.request import MAX_CHOICES, Request
from headway.core.sampling import SamplingParams

MAX_LOGPROBS = 256
"""Far above what OpenAI's API allows (20). A step's report must fit a frame of 64 MiB: with a vocabulary of 150,000 in
full, 35 sequences would exceed it and end the engine."""

LEAST_FLOAT = 2.0**-126
"""What the native core, which flushes subnormal numbers, still tells from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """What waits in a request's class: choices that have never run, their prompt tokens, and the expected wait."""

    num_sequences: int
    num_tokens: int
    wait_s: float
    draining: bool


def refusal(
    request: Request, info: EngineInfo, limits: SchedulerConfig, load: QueueLoad
) -> HeadwayError | None:
    """Return why `request` cannot be accepted, or None if it can."""
    return _malformed(request, info) or _too_long(request, info) or _no_room(request, limits, load)


def _malformed(request: Request, info: EngineInfo) -> HeadwayError | None:
    if not request.token_ids:
        return InvalidRequest("The prompt is empty; send at least one token.", param="prompt")
    if min(request.token_ids) < 0 or max(request.token_ids) >= info.vocab_size:
        message = f"The prompt has a token id outside 0 to {info.vocab_size - 1}; use this model's tokenizer."
        return InvalidRequest(message, param="prompt")
    if request.max_tokens < 1:
        return InvalidRequest("max_tokens must be at least 1.", param="max_tokens")
    if not 1 <= request.n <= MAX_CHOICES:
        return InvalidRequest(f"n must be between 1 and {MAX_CHOICES}.", param="n")
    if not 0 <= request.first_choice <= MAX_CHOICES - request.n:
        return InvalidRequest(f"first_choice + n must be between 1 and {MAX_CHOICES}.", param="first_choice")
    if not 0 <= request.num_resumed < len(request.token_ids):
        return InvalidRequest("num_resumed must leave at least one prompt token.", param="num_resumed")
    if request.pooling is not None and (request.n != 1 or request.grammar is not None):
        return InvalidRequest("A request for an embedding has one choice and no grammar.", param="n")
    if request.adapter_id != 0:
        return InvalidRequest(
            f"Adapter {request.adapter_id} is not loaded; leave it out.", param="adapter_id"
        )
    for param, holds, rule in _sampling_rules(request.sampling, info.vocab_size):
        if not holds:
            return InvalidRequest(f"{param} must {rule}.", param=param)
    return None


def _sampling_rules(sampling: SamplingParams, vocab_size: int) -> Iterator[tuple[str, bool, str]]:
    """Yield (parameter, whether its rule holds, the rule), for the values as the runner sees them, in float32."""
    temperature, top_p, min_p = _float32(sampling.temperature, sampling.top_p, sampling.min_p)
    repetition, presence, frequency = _float32(
        sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty
    )
    yield "temperature", 0 <= temperature < inf, "be finite and at least 0"
    yield "top_k", 0 <= sampling.top_k < 2**31, "be 0 (off) or the number of tokens to keep"
    yield "top_p", LEAST_FLOAT <= top_p <= 1, "be above 0 and at most 1"
    yield "min_p", 0 <= min_p <= 1, "be between 0 and 1"
    yield "repetition_penalty", LEAST_FLOAT <= repetition < inf, "be finite and above 0"
    yield "presence_penalty", -2 <= presence <= 2, "be between -2 and 2"
    yield "frequency_penalty", -2 <= frequency <= 2, "be between -2 and 2"
    yield "seed", 0 <= sampling.seed < 2**64, "be between 0 and 2**64 - 1"
    biased = all(0 <= token < vocab_size for token, _ in sampling.logit_bias)
    yield "logit_bias", biased, f"name token ids between 0 and {vocab_size - 1}"
    finite = all(map(isfinite, _float32(*(bias for _, bias in sampling.logit_bias))))
    yield "logit_bias", finite, "add finite numbers"
    num_logprobs = sampling.num_logprobs or 0
    yield "logprobs", 0 <= num_logprobs <= MAX_LOGPROBS, f"be between 0 and {MAX_LOGPROBS}"


def _float32(*values: float) -> Sequence[float]:
    return array("f", values)


def _too_long(request: Request, info: EngineInfo) -> HeadwayError | None:
    if request.pooling is not None:
        return _text_too_long(len(request.token_ids), info)
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


def _text_too_long(num_tokens: int, info: EngineInfo) -> HeadwayError | None:
    """Nothing is generated: the text alone must fit, all of it into the cache."""
    limit = min(info.max_context, info.num_blocks * info.block_size)
    if num_tokens <= limit:
        return None
    return ContextExceeded(
        f"The text has {num_tokens} tokens; the most this server embeds at once is {limit}. Shorten or divide it.",
        param="input",
    )


def _no_room(request: Request, limits: SchedulerConfig, load: QueueLoad) -> HeadwayError | None:
    if load.draining:
        return Draining("The server is shutting down; send the request to another one, or again later.")
    if request.resumes:
        return None
    if load.num_sequences >= limits.max_queued_requests:
        return QueueFull(
            f"{load.num_sequences} requests wait already; retry in {load.wait_s:.0f} s.",
            retry_after_s=load.wait_s,
        )
    # Each choice counts with its prompt: it is a sequence that holds the tokens and that every step may look at.
    num_tokens = request.n * len(request.token_ids)
    if load.num_sequences and load.num_tokens + num_tokens > limits.max_queued_tokens:
        return QueueFull(
            f"Requests with {load.num_tokens} prompt tokens wait already; retry in {load.wait_s:.0f} s.",
            retry_after_s=load.wait_s,
        )
    return None
