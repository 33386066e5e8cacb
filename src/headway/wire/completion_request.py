"""A text completion request: bytes in, a checked `CompletionCall` out. Field by field after OpenAI's API reference.

`return_token_ids` and `return_tokens_as_token_ids` are vLLM's extensions: whoever puts a gateway in front wants tokens back.
"""

from typing import Annotated, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.core.request import MAX_CHOICES
from headway.wire.fields import check_range, convert, decode_object, select
from headway.wire.options import MAX_LOGPROBS, GenerationOptions, OptionFields, check_options
from headway.wire.prompts import Prompt, parse_prompts
from headway.wire.schema_hints import PROMPTS, between

IGNORED: Final = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "user"})
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "service_tier": ("auto", "default"),
    "store": (False,),
}


class CompletionFields(OptionFields, kw_only=True):
    """The supported fields of a text completion, typed."""

    prompt: Annotated[msgspec.Raw, PROMPTS]
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    logprobs: Annotated[int | None, between(0, MAX_LOGPROBS)] = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None


class CompletionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. `model` None: the caller named none. Choices of prompt i have the indices i·n to i·n+n-1.

    suffix                       what follows the text that is asked for (fill in the middle); "" = nothing
    return_token_ids             whether choices bring their tokens' ids beside the text
    return_tokens_as_token_ids   whether log-probabilities name tokens as `token_id:N` instead of by their text
    """

    model: str | None
    prompts: tuple[Prompt, ...]
    suffix: str
    echo: bool
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    options: GenerationOptions


def parse_completion(body: bytes) -> CompletionCall:
    """Parse and check a request's body; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=CompletionFields.__struct_fields__,
        ignored=IGNORED,
        neutral=_NEUTRAL,
        long=("prompt", "suffix"),
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
    prompts = parse_prompts(fields.prompt, "prompt", MAX_CHOICES)
    if len(prompts) * options.n > MAX_CHOICES:
        raise InvalidRequest(
            f"A request may ask for at most {MAX_CHOICES} choices; {len(prompts)} prompts × n {options.n} are more.",
            param="prompt",
        )
    suffix = fields.suffix or ""
    if suffix and not all(isinstance(prompt, str) for prompt in prompts):
        raise InvalidRequest("`suffix` needs prompts that are text, not token ids.", param="suffix")
    return CompletionCall(
        model=fields.model,
        prompts=prompts,
        suffix=suffix,
        echo=bool(fields.echo),
        return_token_ids=bool(fields.return_token_ids),
        return_tokens_as_token_ids=bool(fields.return_tokens_as_token_ids),
        options=options,
    )
