"""From raw bytes to checked fields, for any request: JSON, nulls, unknown and unsupported names, types.

It knows no endpoint. Errors are `InvalidRequest` with OpenAI's `param`. null means "not given" everywhere, which is what
OpenAI's clients send for unset fields.

Nothing is built that was not asked for: an object is first only split into the JSON of its fields (`msgspec.Raw`), and
just those that are supported are decoded, by type. Built whole, 8 MiB of small objects take a second of the event loop
and a gigabyte (`tests/wire/test_hostile_bodies.py`); how many there may be at all is `json_bounds`'s.
"""

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.json_bounds import check_size

T = TypeVar("T")

_PATH = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_MISSING = re.compile(r"missing required field `(?P<name>\w+)`")
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB]..\\u....))"
)
"""A high half without a low one after it, or a low one without a high one before it (RFC 8259, section 7)."""
_MAX_SHOWN_CHARS = 100
MAX_SHORT_BYTES = 128 * 1024
"""Any `logit_bias` and any list of stop strings within their own limits has less than half of this."""
_MAX_PEEKED_BYTES = 1000
"""Well above every value that is compared and every quotation."""


def decode_object(body: bytes) -> dict[str, msgspec.Raw]:
    """Split a request's body, a JSON object, into the JSON of its fields. Fields that are null are left out.

    What is not UTF-8, lone surrogates, NaN, trailing text, nesting beyond the interpreter's limit and more than
    `json_bounds` allows are refused with InvalidRequest.
    """
    check_size(body)
    try:
        str(body, "utf-8")  # splitting does not look into strings
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise InvalidRequest("The request's body must be a JSON object.") from None
    except msgspec.DecodeError as error:
        raise _not_json(body, error) from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"The request's body is not valid JSON: byte {error.start} is not UTF-8."
        ) from None
    except RecursionError:
        raise InvalidRequest("The request's body is nested too deeply.") from None
    return {name: field for name, field in fields.items() if not _is_null(field)}


def select(
    fields: Mapping[str, msgspec.Raw],
    *,
    supported: Collection[str],
    ignored: Collection[str],
    neutral: Mapping[str, Collection[object]],
    long: Collection[str],
    where: str = "",
) -> dict[str, msgspec.Raw]:
    """Return the supported fields that are not null; refuse every field that could change the output unseen.

    ignored   names that never change the output, whatever they hold
    neutral   names we do not support, with the values that ask for what happens anyway
    long      names of supported fields whose JSON may exceed `MAX_SHORT_BYTES`
    where     path of the object, for `param` ("messages[2].")
    """
    chosen: dict[str, msgspec.Raw] = {}
    for name, field in fields.items():
        if _is_null(field) or name in ignored:
            continue
        if name in supported:
            if memoryview(field).nbytes > MAX_SHORT_BYTES and name not in long:
                raise InvalidRequest(
                    f"The field {shown(where + name)} is longer than {MAX_SHORT_BYTES} bytes.",
                    param=where + name,
                )
            chosen[name] = field
        elif name not in neutral:
            raise InvalidRequest(
                f"The field {shown(where + name)} is not supported; leave it out.", param=where + name
            )
        elif (value := peek(field)) not in neutral[name]:
            raise InvalidRequest(
                f"The field {shown(where + name)} is not supported with the value {shown(value)}; leave it out.",
                param=where + name,
            )
    return chosen


def peek(field: msgspec.Raw) -> object:
    """Return a field's value, or its JSON as text if it is long (only the beginning) or no value of ours: enough to compare
    and to quote."""
    view = memoryview(field)
    if view.nbytes <= _MAX_PEEKED_BYTES:
        try:
            return decode(view, object)
        except (msgspec.ValidationError, RecursionError):  # 1e400: valid JSON and no float
            pass
    return view[:_MAX_PEEKED_BYTES].tobytes().decode(errors="replace")


def kind_of(item: Mapping[str, msgspec.Raw]) -> object:
    """Return the `type` that an object names, None if it names none."""
    return peek(item["type"]) if "type" in item else None


def decode(data: bytes | memoryview, type_: type[T]) -> T:
    """Decode JSON by type; raises msgspec.ValidationError, or InvalidRequest for what is no JSON."""
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:  # such as lone surrogates, which splitting does not look at
        raise _not_json(data, error) from None


def _not_json(data: bytes | memoryview, error: msgspec.DecodeError) -> InvalidRequest:
    """Say what is wrong; of half a surrogate pair the decoder says anything from "truncated" to "hex escape"."""
    what = "half of a surrogate pair stands alone" if _LONE_SURROGATE.search(data) else str(error)
    return InvalidRequest(f"The request's body is not valid JSON: {what}.")


def convert(fields: Mapping[str, msgspec.Raw], type_: type[T], *, where: str = "") -> T:
    """Decode `fields` as a msgspec struct; raises InvalidRequest that names the field."""
    try:
        return decode(msgspec.json.encode(fields), type_)
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
        if len(reason) > 2 * _MAX_SHOWN_CHARS:  # it may quote the value
            reason = reason[: 2 * _MAX_SHOWN_CHARS] + "…"
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


def _is_null(field: msgspec.Raw) -> bool:
    return memoryview(field)[:5].tobytes() == b"null"


def _shown_number(value: float) -> str:
    """Write a number for a sentence; an integer may exceed every float and has as many digits as its sender likes."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
