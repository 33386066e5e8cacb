"""API tokens: how one is made, what it looks like, and what is kept of it, which is never the token.

A token is 256 random bits, so nobody guesses one and nothing slow is needed to hide it: what is kept is its HMAC-SHA-256
under the server's key (RFC 2104). Its public id is drawn for itself and tells nothing of it.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

from headway.core.secret import Secret

RandomBytes = Callable[[int], bytes]
"""Returns so many bytes that nobody can foretell, as `secrets.token_bytes` does."""

PREFIX: Final = "hw_"
"""By which people, and programs that look for keys where none belong, know one."""
NUM_RANDOM_BYTES: Final = 32
NUM_ID_BYTES: Final = 6
DIGEST_BYTES: Final = 32

_TOKEN: Final = re.compile(r"hw_[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
"""32 bytes in base64url: the last character has but 4 bits to say, so that no two texts are one token."""
_PUBLIC_ID: Final = re.compile(r"tok_[0-9a-f]{12}")


def make_token(random_bytes: RandomBytes) -> Secret:
    """Return a new token."""
    drawn = base64.urlsafe_b64encode(random_bytes(NUM_RANDOM_BYTES))
    return Secret(PREFIX + drawn.rstrip(b"=").decode())


def make_public_id(random_bytes: RandomBytes) -> str:
    """Return a new name for a token."""
    return f"tok_{random_bytes(NUM_ID_BYTES).hex()}"


def looks_like_token(shown: Secret) -> bool:
    """Whether this claims to be an API token, be it a right one or not."""
    return shown.reveal().startswith(PREFIX)


def is_token(shown: Secret) -> bool:
    """Whether this has the form of an API token."""
    return _TOKEN.fullmatch(shown.reveal()) is not None


def is_public_id(text: str) -> bool:
    """Whether this has the form of a token's name."""
    return _PUBLIC_ID.fullmatch(text) is not None


class Digests:
    """Makes digests under one key, which it takes in once for all of them (RFC 2104, section 4)."""

    def __init__(self, server_key: bytes) -> None:
        self._keyed = hmac.new(server_key, digestmod=hashlib.sha256)

    def of(self, shown: Secret) -> bytes:
        """Return what is kept of a token, `DIGEST_BYTES` bytes."""
        keyed = self._keyed.copy()
        keyed.update(shown.reveal().encode())
        return keyed.digest()


def digest_of(server_key: bytes, shown: Secret) -> bytes:
    """Return one digest."""
    return Digests(server_key).of(shown)
