"""A text completion request: bytes in, a checked `CompletionCall` out. Field by field after OpenAI's API reference."""

from typing import Final, TypeVar

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.fields import check_range, convert, decode_object, select
from headway.wire.options import MAX_CHOICES, MAX_LOGPROBS, GenerationOptions, OptionFields, check_options

T = TypeVar("T")

Prompt = str | tuple[int, ...]
"""Text, or token ids that the model's vocabulary must hold (checked where the model is known)."""

_IGNORED: Final = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "user"})
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
}
_PROMPT_FORMS: Final = "a string, a list of strings, a list of token ids or a list of lists of token ids"


class CompletionFields(OptionFields, kw_only=True):
    """The supported fields of a text completion, typed."""

    prompt: str | list[object]
    echo: bool | None = None
    best_of: int | None = None
    logprobs: int | None = None


class CompletionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. `model` None: the caller named none. Choices of prompt i have the indices i·n to i·n+n-1."""

    model: str | None
    prompts: tuple[Prompt, ...]
    echo: bool
    options: GenerationOptions


def parse_completion(body: bytes) -> CompletionCall:
    """Parse and check a request's body; raises InvalidRequest."""
    chosen = select(
        decode_object(body), supported=CompletionFields.__struct_fields__, ignored=_IGNORED, neutral=_NEUTRAL
    )
    fields = convert(chosen, CompletionFields)
    if fields.logprobs is not None:
        check_range("logprobs", fields.logprobs, 0, MAX_LOGPROBS)
    options = check_options(fields, max_tokens_param="max_tokens", num_logprobs=fields.logprobs)
    if fields.best_of is not None and fields.best_of != options.n:
        raise InvalidRequest(
            "`best_of` is not supported unless it equals `n`; leave it out.", param="best_of"
        )
    if fields.echo and fields.logprobs is not None:
        raise InvalidRequest("`echo` is not supported together with `logprobs`.", param="echo")
    prompts = _prompts(fields.prompt)
    if len(prompts) * options.n > MAX_CHOICES:
        raise InvalidRequest(
            f"A request may ask for at most {MAX_CHOICES} choices; {len(prompts)} prompts × n {options.n} are more.",
            param="prompt",
        )
    return CompletionCall(model=fields.model, prompts=prompts, echo=bool(fields.echo), options=options)


def _prompts(prompt: str | list[object]) -> tuple[Prompt, ...]:
    if isinstance(prompt, str):
        return (prompt,)
    if not prompt:
        raise InvalidRequest(f"`prompt` is empty; send {_PROMPT_FORMS}.", param="prompt")
    first = prompt[0]
    if isinstance(first, str):
        return _typed(prompt, tuple[str, ...])
    if isinstance(first, list):
        prompts = _typed(prompt, tuple[tuple[int, ...], ...])
        if not all(prompts):
            raise InvalidRequest("A prompt of token ids is empty; send at least one id.", param="prompt")
        return prompts
    return (_typed(prompt, tuple[int, ...]),)


def _typed(prompt: list[object], type_: type[T]) -> T:
    try:
        return msgspec.convert(prompt, type_)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"`prompt` must be {_PROMPT_FORMS}: {error}.", param="prompt") from None
