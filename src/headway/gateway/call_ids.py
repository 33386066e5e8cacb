"""Ids of tool calls, derived from a key that is drawn once for each call of the API: drawn again, they are the same.

A stream that goes on in another process (`gateway.replay`) must name the calls that its client has seen already. With a
key of 16 random bytes two answers share an id as rarely as if each were random.
"""

import secrets
import string
from collections.abc import Callable
from hashlib import blake2b
from itertools import count
from typing import Final

NUM_KEY_BYTES: Final = 16
_ID_CHARS: Final = string.ascii_letters + string.digits
_NUM_ID_CHARS: Final = 24
"""As many as OpenAI's have."""


def new_call_key() -> bytes:
    """Draw the key of one answer's calls."""
    return secrets.token_bytes(NUM_KEY_BYTES)


def call_ids(key: bytes, choice: int) -> Callable[[], str]:
    """Return what gives the ids of a choice's calls, one after the other."""
    numbers = count()
    return lambda: _call_id(key, choice, next(numbers))


def _call_id(key: bytes, choice: int, number: int) -> str:
    digest = blake2b(b"%d.%d" % (choice, number), key=key, digest_size=32).digest()
    rest, chars = int.from_bytes(digest, "big"), []
    for _ in range(_NUM_ID_CHARS):
        rest, index = divmod(rest, len(_ID_CHARS))
        chars.append(_ID_CHARS[index])
    return "call_" + "".join(chars)
