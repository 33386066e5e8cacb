"""A store of tokens in memory, whose answers a test may hold back or let fail; and tokens to keep in it."""

import asyncio
from collections.abc import Sequence

from headway.access.api_token import digest_of, make_token
from headway.access.stored_token import StoredToken
from headway.access.token_store import StoreFailed
from headway.core.caller import CallerLimits
from headway.core.secret import Secret

SERVER_KEY = bytes(range(32))
NOW_S = 1_800_000_000


def token_number(number: int) -> Secret:
    """Return the same token for the same number."""
    return make_token(lambda num_bytes: number.to_bytes(num_bytes, "big"))


def stored(number: int = 1, **fields: object) -> StoredToken:
    """Return what is kept of `token_number(number)`."""
    values: dict[str, object] = {
        "token_id": f"tok_{number:012x}",
        "digest": digest_of(SERVER_KEY, token_number(number)),
        "tenant": "t1",
        "user": f"user-{number}",
        "service_class": "high",
        "kind": "service",
        "limits": CallerLimits(requests_per_s=2.5, max_concurrent=3),
        "note": "né à Zürich",
        "created_s": NOW_S + number,
        **fields,
    }
    return StoredToken(**values)  # type: ignore[arg-type]  # as the test says


class MemoryTokenStore:
    """A `TokenStore`.

    failure     raised by everything, if there is one
    held        answers of `find_by_digest` wait for it, if there is one
    num_asked   how often `find_by_digest` was called
    """

    place = "memory"

    def __init__(self, *tokens: StoredToken) -> None:
        self.tokens = {token.token_id: token for token in tokens}
        self.standings: dict[str, bytes] = {}
        self.failure: StoreFailed | None = None
        self.held: asyncio.Event | None = None
        self.num_asked = 0
        self.key_check: bytes | None = None
        self.closed = False

    async def create(self, token: StoredToken) -> None:
        self._check()
        self.tokens[token.token_id] = token

    async def find_by_digest(self, digest: bytes) -> StoredToken | None:
        self.num_asked += 1
        if self.held is not None:
            await self.held.wait()
        self._check()
        found = [token for token in self.tokens.values() if token.digest == digest]
        return found[0] if found else None

    async def list(self) -> Sequence[StoredToken]:
        self._check()
        return [*self.tokens.values()]

    async def show(self, token_id: str) -> StoredToken | None:
        self._check()
        return self.tokens.get(token_id)

    async def revoke(self, token_id: str, now_s: int) -> StoredToken | None:
        self._check()
        self.tokens[token_id] = stored(int(token_id[4:], 16), revoked_s=now_s)
        return self.tokens[token_id]

    async def get_standing(self, token_id: str) -> bytes | None:
        return self.standings.get(token_id)

    async def put_standing(self, token_id: str, standing: bytes, now_s: int) -> None:
        del now_s
        self.standings[token_id] = standing

    async def get_key_check(self) -> bytes | None:
        self._check()
        return self.key_check

    async def agree_on_key(self, check: bytes) -> bytes:
        self._check()
        self.key_check = self.key_check or check
        return self.key_check

    async def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
