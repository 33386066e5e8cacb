"""What a request shows to be let in: `Authorization: Bearer …` (RFC 6750, 2.1), or `x-api-key` as Anthropic's SDKs send it.

It knows neither what the credential is nor whose. Nothing that it raises quotes one.
"""

import re
from collections.abc import Iterable
from typing import Final

from headway.core.errors import HeadwayError, Unauthenticated
from headway.core.secret import Secret

AUTHORIZATION: Final = b"authorization"
API_KEY: Final = b"x-api-key"

MAX_CREDENTIAL_CHARS: Final = 8_192
"""A JWT with two dozen claims and a signature of RSA-4096 has a quarter of this."""

_CREDENTIAL: Final = re.compile(rb"[A-Za-z0-9._~+/-]{1,%d}={0,2}" % MAX_CREDENTIAL_CHARS)
"""`b64token` of RFC 6750, 2.1: what API tokens, JWT and everybody's keys are made of."""
_BEARER: Final = re.compile(
    rb"bearer +(.+)", re.IGNORECASE | re.DOTALL
)  # a scheme's case is free (RFC 9110, 11.1)
_SPACE: Final = b" \t"

CHALLENGE: Final = 'Bearer realm="headway"'


def parse_credentials(headers: Iterable[tuple[bytes, bytes]]) -> Secret | None:
    """Return the credential in an ASGI scope's `headers` (names in lower case), None if there is none.

    Raises Unauthenticated for one that is malformed or comes twice, and for two that differ: whose should count?
    """
    shown: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in (AUTHORIZATION, API_KEY):
            if name in shown:
                raise Unauthenticated(f"The header `{name.decode()}` comes more than once; send it once.")
            shown[name] = value.strip(_SPACE)
    bearer = _bearer(shown[AUTHORIZATION]) if AUTHORIZATION in shown else None
    api_key = _credential(shown[API_KEY], "x-api-key: TOKEN") if API_KEY in shown else None
    if bearer is not None and api_key is not None and bearer != api_key:
        raise Unauthenticated("`authorization` and `x-api-key` hold two different tokens; send one.")
    return bearer if bearer is not None else api_key


def challenge(error: HeadwayError) -> str | None:
    """Return the value of the `WWW-Authenticate` header, which a 401 must have (RFC 9110, 11.6.1); None = no header."""
    return CHALLENGE if error.status == 401 else None


def _bearer(value: bytes) -> Secret:
    form = "authorization: Bearer TOKEN"
    found = _BEARER.fullmatch(value)
    if found is None:
        raise Unauthenticated(f"The header `authorization` is malformed; its form is `{form}`.")
    return _credential(found[1], form)


def _credential(value: bytes, form: str) -> Secret:
    if _CREDENTIAL.fullmatch(value) is None:
        raise Unauthenticated(
            f"The token is malformed: `{form}` holds up to {MAX_CREDENTIAL_CHARS} letters, digits and -._~+/=."
        )
    return Secret(value.decode("ascii"))
