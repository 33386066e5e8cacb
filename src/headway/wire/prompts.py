"""The forms in which OpenAI's API takes text: strings or token ids, one or several. It knows no endpoint."""

import re
from typing import Final, TypeVar

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.fields import decode
from headway.wire.json_bounds import holds_more

T = TypeVar("T")

Prompt = str | tuple[int, ...]
"""Text, or token ids that the model's vocabulary must hold (checked where the model is known)."""

PROMPT_FORMS: Final = "a string, a list of strings, a list of token ids or a list of lists of token ids"

_BEGINNING: Final = re.compile(rb"(\[?)[ \t\r\n]*(.)", re.DOTALL)
"""Of any JSON value: whether it is a list, and its or the list's first character."""


def parse_prompts(field: msgspec.Raw, name: str, max_prompts: int) -> tuple[Prompt, ...]:
    """Decode the field `name` in the form that its first characters tell; raises InvalidRequest."""
    json = bytes(field)
    beginning = _BEGINNING.match(json)
    assert beginning is not None, "JSON is never empty"
    match b"".join(beginning.groups()):
        case b"[]":
            raise InvalidRequest(f"`{name}` is empty; send {PROMPT_FORMS}.", param=name)
        case b'["':
            if holds_more(json, max_prompts):
                raise InvalidRequest(f"`{name}` may hold at most {max_prompts} prompts.", param=name)
            return _typed(json, tuple[str, ...], name)
        case b"[[":
            num_prompts = json.count(b"[") - 1  # no strings within
            if num_prompts > max_prompts:
                raise InvalidRequest(
                    f"`{name}` may hold at most {max_prompts} prompts; it holds {num_prompts}.", param=name
                )
            prompts = _typed(json, tuple[tuple[int, ...], ...], name)
            if not all(prompts):
                raise InvalidRequest("A prompt of token ids is empty; send at least one id.", param=name)
            return prompts
        case two if two[:1] == b"[":
            return (_typed(json, tuple[int, ...], name),)
        case _:
            return (_typed(json, str, name),)


def _typed(json: bytes, type_: type[T], name: str) -> T:
    try:
        return decode(json, type_)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"`{name}` must be {PROMPT_FORMS}: {error}.", param=name) from None
