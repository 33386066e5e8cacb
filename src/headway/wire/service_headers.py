"""What a request's headers ask of scheduling: its class, tenant, deadlines and session. It knows no endpoint.

Whether they count at all is the gateway's decision: a stranger must not promote himself.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Final, TypeVar, get_args

import msgspec

from headway.core.clock import NS_PER_MS
from headway.core.errors import InvalidRequest
from headway.core.request import ServiceClass
from headway.wire.fields import shown

CLASS: Final = "x-headway-class"
TENANT: Final = "x-headway-tenant"
TTFT_MS: Final = "x-headway-ttft-ms"
ITL_MS: Final = "x-headway-itl-ms"
SESSION: Final = "x-headway-session"

MAX_NAME_CHARS: Final = 128
"""Of a tenant or a session: a UUID with a prefix or a SHA-512 in hex fits, and a cache partition's name stays small."""
MAX_TTFT_MS: Final = 3_600_000
"""An hour; whoever waits longer has no deadline."""
MAX_ITL_MS: Final = 60_000
"""A minute; nobody watches a stream that is slower."""

_CLASSES: Final[Mapping[str, ServiceClass]] = {name: name for name in get_args(ServiceClass)}
_NAME_PATTERN: Final = f"[!-~]{{1,{MAX_NAME_CHARS}}}"
"""Visible ASCII characters (VCHAR of RFC 5234, appendix B.1): no space, so that no name can forge a field of a log line."""
_NUMBER_PATTERN: Final = r"[0-9]+(\.[0-9]+)?"

_NAMES: Final = frozenset(name.encode() for name in (CLASS, TENANT, TTFT_MS, ITL_MS, SESSION))
_TRUSTED: Final = "It counts only where the server trusts these headers (`--trust-headers`)."
_NAME_SCHEMA: Final = {"type": "string", "pattern": f"^{_NAME_PATTERN}$"}
PARAMETERS: Final[list[dict[str, object]]] = [
    {"name": name, "in": "header", "description": f"{what} {_TRUSTED}", "schema": schema}
    for name, what, schema in (
        (CLASS, "Class of service.", {"enum": [*_CLASSES]}),
        (TENANT, "Whom the request's tokens are accounted to.", _NAME_SCHEMA),
        (
            TTFT_MS,
            "When its first token is due, after arrival.",
            {"type": "number", "minimum": 0, "maximum": MAX_TTFT_MS},
        ),
        (
            ITL_MS,
            "Most between two tokens.",
            {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_ITL_MS},
        ),
        (SESSION, "The conversation it belongs to.", _NAME_SCHEMA),
    )
]
"""The same as parameters of an OpenAPI operation."""

T = TypeVar("T")


class ServiceTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks of scheduling; fields are those of `core.request.Request`, the defaults ask for nothing."""

    service_class: ServiceClass = "normal"
    tenant: str = ""
    ttft_deadline_ns: int | None = None
    itl_target_ns: int | None = None
    session: str | None = None


NOTHING_ASKED: Final = ServiceTerms()


def parse_service_headers(headers: Iterable[tuple[bytes, bytes]]) -> ServiceTerms:
    """Return what an ASGI scope's `headers` (names in lower case) ask for.

    Raises InvalidRequest for a header that is malformed or comes twice; `param` is its name.
    """
    texts = _texts(headers)
    if not texts:
        return NOTHING_ASKED
    a_name = f"1 to {MAX_NAME_CHARS} visible ASCII characters, without spaces"
    a_wait = f"a number of milliseconds from 0 to {MAX_TTFT_MS}"
    a_pace = f"a number of milliseconds over 0 and up to {MAX_ITL_MS}"
    return ServiceTerms(
        service_class=_read(texts, CLASS, _CLASSES.get, "high, normal or low") or "normal",
        tenant=_read(texts, TENANT, _name, a_name) or "",
        ttft_deadline_ns=_read(texts, TTFT_MS, _ttft_ns, a_wait),
        itl_target_ns=_read(texts, ITL_MS, _itl_ns, a_pace),
        session=_read(texts, SESSION, _name, a_name),
    )


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return our headers' values by name; raises InvalidRequest for one that comes twice: whose should count?"""
    texts: dict[str, str] = {}
    for raw_name, value in headers:
        if raw_name in _NAMES:
            name = raw_name.decode()
            if name in texts:
                raise InvalidRequest(f"The header `{name}` comes more than once; send it once.", param=name)
            texts[name] = value.decode("latin-1").strip(
                " \t"
            )  # space around is no part of it (RFC 9110, 5.5)
    return texts


def _read(texts: Mapping[str, str], name: str, read: Callable[[str], T | None], allowed: str) -> T | None:
    """Return a header's value, None if it was not sent; raises InvalidRequest where `read` makes nothing of it."""
    text = texts.get(name)
    if text is None:
        return None
    value = read(text)
    if value is None:
        raise InvalidRequest(f"The header `{name}` must be {allowed}; it is {shown(text)}.", param=name)
    return value


def _name(text: str) -> str | None:
    return text if re.fullmatch(_NAME_PATTERN, text) else None


def _ttft_ns(text: str) -> int | None:
    ms = _number(text)
    return int(ms * NS_PER_MS) if ms is not None and ms <= MAX_TTFT_MS else None


def _itl_ns(text: str) -> int | None:
    ms = _number(text)
    return max(1, int(ms * NS_PER_MS)) if ms is not None and 0 < ms <= MAX_ITL_MS else None


def _number(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(_NUMBER_PATTERN, text) else None
