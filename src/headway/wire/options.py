"""What a request may ask of generation, shared by chat and text completions: the fields, their limits, their meaning.

It knows neither vocabulary nor context length: what depends on the model is checked where the model is known.
Fields are OpenAI's (API reference, chat and completions "create"); `top_k`, `min_p`, `repetition_penalty`,
`stop_token_ids` and `ignore_eos` are the extensions that vLLM introduced, which clients send through `extra_body`.
"""

from typing import Annotated, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.core.request import MAX_CHOICES, Grammar
from headway.core.sampling import SamplingParams
from headway.wire.fields import check_range, shown
from headway.wire.schema_hints import at_least, between, described
from headway.wire.structured import StructuredFields, grammar_of

MAX_STOP_STRINGS: Final = 16
"""OpenAI allows 4; editors send more (one per fence and marker of their prompt format)."""
MAX_STOP_CHARS: Final = 256
"""Text up to this length is held back while it may still become a stop string."""
MAX_STOP_TOKEN_IDS: Final = 64
MAX_LOGPROBS: Final = 20
"""OpenAI's limit of `top_logprobs`."""
MAX_LOGIT_BIAS: Final = 1024
"""OpenAI's limit is 300; bounded because each entry costs time in every step."""
_LEAST_TOP_P: Final = 1e-6
"""What a smaller `top_p` means: below any largest probability of a vocabulary under a million, so one token stays."""
_LEAST_REPETITION_PENALTY: Final = 0.01
"""Logits are divided by it; far below this the quotients are no float32 any more and no token can be drawn."""


_STOP: Final = described(
    anyOf=[
        {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS},
        {
            "type": "array",
            "maxItems": MAX_STOP_STRINGS,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS},
        },
        {"type": "null"},
    ]
)
_BIASES: Final = described(
    maxProperties=MAX_LOGIT_BIAS,
    propertyNames={"pattern": "^[0-9]{1,10}$"},
    additionalProperties={"type": "number", "minimum": -100, "maximum": 100},
)


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`stream_options`; `include_obfuscation` never changes the text and is ignored."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class OptionFields(StructuredFields, kw_only=True):
    """The fields chat and text completions share, typed, None = not given."""

    model: str | None = None
    max_tokens: Annotated[int | None, at_least(1)] = None
    temperature: Annotated[float | None, between(0, 2)] = None
    top_p: Annotated[float | None, between(0, 1)] = None
    n: Annotated[int | None, between(1, MAX_CHOICES)] = None
    stop: Annotated[str | list[str] | None, _STOP] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: Annotated[float | None, between(-2, 2)] = None
    frequency_penalty: Annotated[float | None, between(-2, 2)] = None
    logit_bias: Annotated[dict[str, float] | None, _BIASES] = None
    seed: Annotated[int | None, between(-(2**63), 2**64 - 1)] = None
    top_k: Annotated[int | None, between(-1, 2**31 - 1)] = None
    min_p: Annotated[float | None, between(0, 1)] = None
    repetition_penalty: Annotated[float | None, between(_LEAST_REPETITION_PENALTY, 10)] = None
    stop_token_ids: Annotated[list[int] | None, described(maxItems=MAX_STOP_TOKEN_IDS)] = None
    ignore_eos: bool | None = None


class GenerationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to generate, validated.

    sampling     complete but for the seed, which is `seed` or drawn at acceptance
    max_tokens   None = the endpoint's default
    grammar      None = free text
    """

    sampling: SamplingParams
    seed: int | None
    max_tokens: int | None
    n: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    grammar: Grammar | None = None


def check_options(
    fields: OptionFields, *, max_tokens_param: str, num_logprobs: int | None
) -> GenerationOptions:
    """Check every range and return the options; raises InvalidRequest that names the field."""
    sampling = SamplingParams(
        temperature=_ranged("temperature", fields.temperature, 1.0, 0, 2),
        top_k=_top_k(fields.top_k),
        top_p=max(_LEAST_TOP_P, _ranged("top_p", fields.top_p, 1.0, 0, 1)),
        min_p=_ranged("min_p", fields.min_p, 0.0, 0, 1),
        repetition_penalty=_repetition_penalty(fields.repetition_penalty),
        presence_penalty=_ranged("presence_penalty", fields.presence_penalty, 0.0, -2, 2),
        frequency_penalty=_ranged("frequency_penalty", fields.frequency_penalty, 0.0, -2, 2),
        logit_bias=_logit_bias(fields.logit_bias or {}),
        num_logprobs=num_logprobs,
    )
    n = 1 if fields.n is None else fields.n
    check_range("n", n, 1, MAX_CHOICES)
    if fields.max_tokens is not None and fields.max_tokens < 1:
        raise InvalidRequest(
            f"`{max_tokens_param}` must be at least 1; it is {fields.max_tokens}.", param=max_tokens_param
        )
    stream_options = fields.stream_options or StreamOptions()
    return GenerationOptions(
        sampling=sampling,
        seed=_seed(fields.seed),
        max_tokens=fields.max_tokens,
        n=n,
        stop=_stop(fields.stop),
        stop_token_ids=_stop_token_ids(fields.stop_token_ids or []),
        ignore_eos=bool(fields.ignore_eos),
        stream=bool(fields.stream),
        include_usage=bool(stream_options.include_usage),
        grammar=grammar_of(fields),
    )


def _ranged(name: str, value: float | None, default: float, low: float, high: float) -> float:
    if value is None:
        return default
    check_range(name, value, low, high)
    return value


def _top_k(value: int | None) -> int:
    if value is None or value == -1:  # vLLM's word for "off"
        return 0
    check_range("top_k", value, 0, 2**31 - 1)
    return value


def _repetition_penalty(value: float | None) -> float:
    if value is None:
        return 1.0
    check_range("repetition_penalty", value, _LEAST_REPETITION_PENALTY, 10)
    return value


def _seed(value: int | None) -> int | None:
    """OpenAI's seed is a signed 64-bit integer; the generator's key is its bits."""
    if value is None:
        return None
    if not -(2**63) <= value < 2**64:
        raise InvalidRequest("`seed` must fit into 64 bits.", param="seed")
    return value % 2**64


def _stop(value: str | list[str] | None) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else value or []
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequest(
            f"`stop` may hold at most {MAX_STOP_STRINGS} strings; it holds {len(strings)}.", param="stop"
        )
    for text in strings:
        if not 1 <= len(text) <= MAX_STOP_CHARS:
            raise InvalidRequest(
                f"Each string of `stop` must have 1 to {MAX_STOP_CHARS} characters; one has {len(text)}.",
                param="stop",
            )
    return tuple(dict.fromkeys(strings))


def _stop_token_ids(ids: list[int]) -> tuple[int, ...]:
    if len(ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequest(
            f"`stop_token_ids` may hold at most {MAX_STOP_TOKEN_IDS} ids; it holds {len(ids)}.",
            param="stop_token_ids",
        )
    return tuple(dict.fromkeys(ids))


def _logit_bias(bias: dict[str, float]) -> tuple[tuple[int, float], ...]:
    if len(bias) > MAX_LOGIT_BIAS:
        raise InvalidRequest(
            f"`logit_bias` may hold at most {MAX_LOGIT_BIAS} tokens; it holds {len(bias)}.",
            param="logit_bias",
        )
    pairs: dict[int, float] = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise InvalidRequest(
                f"The keys of `logit_bias` must be token ids; one is {shown(key)}.", param="logit_bias"
            )
        check_range("logit_bias", value, -100, 100)
        pairs[int(key)] = value
    return tuple(pairs.items())
