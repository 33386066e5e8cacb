"""Where tokens are kept: what the directory and the command ask of a store, and how stores fail."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

from headway.access.stored_token import StoredToken

Failure = Literal[
    "locked",
    "gone",
    "corrupted",
    "newer",
    "read_only",
    "unreachable",
    "slow",
    "full",
    "refused",
    "failing",
]

_TOLD: Final[Mapping[Failure, str]] = {
    "locked": "another process holds it locked",
    "gone": "it is not there, or cannot be opened",
    "corrupted": "it is damaged, or something else than a store of tokens",
    "newer": "a newer Headway made it",
    "read_only": "it can only be read",
    "unreachable": "it cannot be reached",
    "slow": "it does not answer in time",
    "full": "there is no room for it to write",
    "refused": "it refuses what it is asked",
    "failing": "it fails",
}

STANDING_DAYS: Final = 7
"""How long a standing is kept that nobody renews; what it tells has long faded by then."""
MAX_STANDING_BYTES: Final = 65_536


class StoreFailed(Exception):
    """A store cannot do what it was asked. `place` is where it is, without any password."""

    def __init__(self, failure: Failure, place: str) -> None:
        super().__init__(f"The store of tokens {place} cannot be used: {_TOLD[failure]}.")
        self.failure: Failure = failure
        self.place = place

    @property
    def told(self) -> str:
        """What is wrong, in half a sentence that names no place."""
        return _TOLD[self.failure]


class TokenStore(Protocol):
    """Keeps tokens, and a few bytes on how each behaves. Everything may raise StoreFailed; nothing blocks the event loop.

    Several processes may use one store at once.
    """

    @property
    def place(self) -> str:
        """Where it is, without any password."""
        ...

    async def create(self, token: StoredToken) -> None:
        """Keep a new token; fails as `refused` where its name or digest is taken."""
        ...

    async def find_by_digest(self, digest: bytes) -> StoredToken | None:
        """Return the token that has this digest, revoked and expired ones too; None if none has."""
        ...

    async def list(self) -> Sequence[StoredToken]:
        """Return all tokens, the oldest first."""
        ...

    async def show(self, token_id: str) -> StoredToken | None:
        """Return the token of this name, None if there is none."""
        ...

    async def revoke(self, token_id: str, now_s: int) -> StoredToken | None:
        """End a token, for good, and return it; one that was revoked before keeps its time. None if there is none."""
        ...

    async def get_standing(self, token_id: str) -> bytes | None:
        """Return what `put_standing` kept last, None if nothing, or more than `STANDING_DAYS` ago."""
        ...

    async def put_standing(self, token_id: str, standing: bytes, now_s: int) -> None:
        """Keep what is known of a caller's behaviour, also of one who shows a JWT; ValueError above MAX_STANDING_BYTES."""
        ...

    async def get_key_check(self) -> bytes | None:
        """Return what was agreed on with `agree_on_key`, None if nothing yet."""
        ...

    async def agree_on_key(self, check: bytes) -> bytes:
        """Return the `server_key.key_check` of the key that tokens here are kept under: the first one ever given."""
        ...

    async def close(self) -> None:
        """Let go of it. Nothing may be asked afterwards."""
        ...
