"""From raw bytes to checked fields, for any request: JSON, nulls, unknown and unsupported names, types.

It knows no endpoint. Errors are `InvalidRequest` with OpenAI's `param`. null means "not given" everywhere, which is what
OpenAI's clients send for unset fields.
"""

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from headway.core.errors import InvalidRequest

T = TypeVar("T")

_PATH = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_MISSING = re.compile(r"missing required field `(?P<name>\w+)`")
_MAX_SHOWN_CHARS = 100


def decode_object(body: bytes) -> dict[str, object]:
    """Decode a request's body: a JSON object in valid UTF-8. Fields that are null are left out.

    Lone surrogates, NaN, trailing text and nesting beyond the interpreter's limit are refused with InvalidRequest.
    """
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The request's body is not valid JSON: {error}.") from None
    except RecursionError:
        raise InvalidRequest("The request's body is nested too deeply.") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The request's body must be a JSON object.")
    return {name: field for name, field in value.items() if field is not None}


def select(
    fields: Mapping[str, object],
    *,
    supported: Collection[str],
    ignored: Collection[str],
    neutral: Mapping[str, Collection[object]],
    where: str = "",
) -> dict[str, object]:
    """Return the supported fields that are not null; refuse every field that could change the output unseen.

    ignored   names that never change the output, whatever they hold
    neutral   names we do not support, with the values that ask for what happens anyway
    where     path of the object, for `param` ("messages[2].")
    """
    chosen: dict[str, object] = {}
    for name, value in fields.items():
        if value is None or name in ignored:
            continue
        if name in supported:
            chosen[name] = value
        elif name not in neutral:
            raise InvalidRequest(
                f"The field {shown(where + name)} is not supported; leave it out.", param=where + name
            )
        elif value not in neutral[name]:
            raise InvalidRequest(
                f"The field {shown(where + name)} is not supported with the value {shown(value)}; leave it out.",
                param=where + name,
            )
    return chosen


def convert(fields: Mapping[str, object], type_: type[T], *, where: str = "") -> T:
    """Check the types of `fields` against a msgspec struct; raises InvalidRequest that names the field."""
    try:
        return msgspec.convert(fields, type_)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        path = where + found["path"] if found else where
        reason = text[: found.start()] if found else text
        missing = _MISSING.search(reason)
        if missing:
            path = (path.rstrip(".") + "." if path else "") + missing["name"]
            raise InvalidRequest(f"The field `{path}` is missing.", param=path) from None
        param = path.rstrip(".") or None
        of = f"The field `{param}`" if param else "The request"
        raise InvalidRequest(f"{of} is malformed: {reason.replace(' | null', '')}.", param=param) from None


def shown(value: object) -> str:
    """Quote a caller's value for a sentence, cut to a length that fits one."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"`{text}`" if len(text) <= _MAX_SHOWN_CHARS else f"`{text[:_MAX_SHOWN_CHARS]}…`"


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise InvalidRequest unless low ≤ value ≤ high."""
    if not low <= value <= high:
        raise InvalidRequest(
            f"`{name}` must be between {low:g} and {high:g}; it is {_shown_number(value)}.", param=name
        )


def _shown_number(value: float) -> str:
    """Write a number for a sentence; an integer may exceed every float and has as many digits as its sender likes."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
