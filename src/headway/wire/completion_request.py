"""A text completion request: bytes in, a checked `CompletionCall` out. Field by field after OpenAI's API reference."""

import re
from typing import Annotated, Final, TypeVar

import msgspec

from headway.core.errors import InvalidRequest
from headway.core.request import MAX_CHOICES
from headway.wire.fields import check_range, convert, decode, decode_object, select
from headway.wire.options import MAX_LOGPROBS, GenerationOptions, OptionFields, check_options

T = TypeVar("T")

Prompt = str | tuple[int, ...]
"""Text, or token ids that the model's vocabulary must hold (checked where the model is known)."""

_IGNORED: Final = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "user"})
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
}
_BEGINNING: Final = re.compile(rb"(\[?)[ \t\r\n]*(.)", re.DOTALL)
"""Of any JSON value: whether it is a list, and its or the list's first character."""
_PROMPT_FORMS: Final = "a string, a list of strings, a list of token ids or a list of lists of token ids"


class CompletionFields(OptionFields, kw_only=True):
    """The supported fields of a text completion, typed."""

    prompt: Annotated[msgspec.Raw, msgspec.Meta(description=_PROMPT_FORMS)]
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
        decode_object(body),
        supported=CompletionFields.__struct_fields__,
        ignored=_IGNORED,
        neutral=_NEUTRAL,
        long=("prompt",),
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


def _prompts(prompt: msgspec.Raw) -> tuple[Prompt, ...]:
    """Decode the prompt in the form that its first characters tell."""
    json = bytes(prompt)
    beginning = _BEGINNING.match(json)
    assert beginning is not None, "JSON is never empty"
    match b"".join(beginning.groups()):
        case b"[]":
            raise InvalidRequest(f"`prompt` is empty; send {_PROMPT_FORMS}.", param="prompt")
        case b'["':
            return _typed(json, tuple[str, ...])
        case b"[[":
            num_prompts = json.count(b"[") - 1  # no strings within
            if num_prompts > MAX_CHOICES:
                raise InvalidRequest(
                    f"`prompt` may hold at most {MAX_CHOICES} prompts; it holds {num_prompts}.",
                    param="prompt",
                )
            prompts = _typed(json, tuple[tuple[int, ...], ...])
            if not all(prompts):
                raise InvalidRequest("A prompt of token ids is empty; send at least one id.", param="prompt")
            return prompts
        case two if two[:1] == b"[":
            return (_typed(json, tuple[int, ...]),)
        case _:
            return (_typed(json, str),)


def _typed(json: bytes, type_: type[T]) -> T:
    try:
        return decode(json, type_)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"`prompt` must be {_PROMPT_FORMS}: {error}.", param="prompt") from None
