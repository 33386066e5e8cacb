"""Tokens in Redis, for several gateways. Needs the extra `gateway`.

A token is a hash of two fields: `record`, which never changes, and `revoked`. One hash tag keeps all keys on one node of a
cluster (Redis cluster specification, "Hash tags").
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import redis.exceptions as redis_errors
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headway.access.stored_token import StoredToken
from headway.access.token_store import MAX_STANDING_BYTES, STANDING_DAYS, Failure, StoreFailed
from headway.core.errors import ConfigError

_Tokens = list[StoredToken]  # the class has a `list` of its own

_NAMES: Final = "headway:{access}:names"
"""From a token's public name to its digest in hexadecimal."""
_TOKEN: Final = "headway:{access}:token:"
_STANDING: Final = "headway:{access}:standing:"
_KEY_CHECK: Final = "headway:{access}:key_check"

_CREATE: Final = """
if redis.call('EXISTS', KEYS[2]) == 1 or redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('HSET', KEYS[2], 'record', ARGV[3])
return 1
"""
_STANDING_S: Final = STANDING_DAYS * 86_400
MAX_CONNECTIONS: Final = 32
"""More at once wait for one of these."""
PAGE: Final = 500
"""Tokens asked for at once by `list`, which must not hold up the server's other clients."""

_FAILURES: Final[Sequence[tuple[type[Exception], Failure]]] = (
    (redis_errors.TimeoutError, "slow"),
    (redis_errors.AuthenticationError, "refused"),
    (redis_errors.AuthorizationError, "refused"),
    (redis_errors.NoPermissionError, "refused"),
    (redis_errors.ReadOnlyError, "read_only"),
    (redis_errors.OutOfMemoryError, "full"),
    (redis_errors.ConnectionError, "unreachable"),
    (OSError, "unreachable"),
)
"""The first that fits counts."""


class RedisTokenStore:
    """A `TokenStore` at a URL such as `redis://host:6379/0`, `rediss://…` or `unix://…`. Connects when first asked."""

    def __init__(self, url: str, *, timeout_s: float = 0.5) -> None:
        self._place = without_password(url)
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                protocol=2,
                timeout=timeout_s,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                max_connections=MAX_CONNECTIONS,
                # once: the connection may have been closed since it was last used
                retry=Retry(NoBackoff(), 1, supported_errors=(redis_errors.ConnectionError,)),
            )
        except (ValueError, TypeError):  # which quote the URL
            raise ConfigError(
                f"The store {self._place} is no URL of a Redis, such as redis://host:6379/0."
            ) from None
        self._client: Any = Redis.from_pool(pool)  # its commands have no types

    @property
    def place(self) -> str:
        """Its URL, without the password."""
        return self._place

    async def create(self, token: StoredToken) -> None:
        """As `TokenStore.create`."""
        digest = token.digest.hex()
        record = msgspec.json.encode(msgspec.structs.replace(token, revoked_s=None))
        keys = (_NAMES, _TOKEN + digest)
        made = await self._ask("EVAL", _CREATE, len(keys), *keys, token.token_id, digest, record)
        if not made:
            raise StoreFailed("refused", self._place)
        if token.revoked_s is not None:
            await self.revoke(token.token_id, token.revoked_s)

    async def find_by_digest(self, digest: bytes) -> StoredToken | None:
        """As `TokenStore.find_by_digest`."""
        return self._token(await self._ask("HMGET", _TOKEN + digest.hex(), "record", "revoked"))

    async def list(self) -> Sequence[StoredToken]:
        """As `TokenStore.list`."""
        digests = [digest.decode() for digest in await self._ask("HVALS", _NAMES)]
        tokens: _Tokens = []
        for start in range(0, len(digests), PAGE):
            pipeline = self._client.pipeline(transaction=False)
            for digest in digests[start : start + PAGE]:
                pipeline.execute_command("HMGET", _TOKEN + digest, "record", "revoked")
            rows = await self._told(pipeline.execute())
            tokens += [token for row in rows if (token := self._token(row)) is not None]
        return sorted(tokens, key=lambda token: (token.created_s, token.token_id))

    async def show(self, token_id: str) -> StoredToken | None:
        """As `TokenStore.show`."""
        digest = await self._ask("HGET", _NAMES, token_id)
        return None if digest is None else await self.find_by_digest(bytes.fromhex(digest.decode()))

    async def revoke(self, token_id: str, now_s: int) -> StoredToken | None:
        """As `TokenStore.revoke`."""
        digest = await self._ask("HGET", _NAMES, token_id)
        if digest is None:
            return None
        await self._ask("HSETNX", _TOKEN + digest.decode(), "revoked", now_s)  # no token is ever deleted
        return await self.find_by_digest(bytes.fromhex(digest.decode()))

    async def get_standing(self, token_id: str) -> bytes | None:
        """As `TokenStore.get_standing`."""
        standing: bytes | None = await self._ask("GET", _STANDING + token_id)
        return standing

    async def put_standing(self, token_id: str, standing: bytes, now_s: int) -> None:  # noqa: ARG002  # Redis has a clock
        """As `TokenStore.put_standing`."""
        if len(standing) > MAX_STANDING_BYTES:
            raise ValueError(f"a standing has at most {MAX_STANDING_BYTES} bytes")
        await self._ask("SET", _STANDING + token_id, standing, "EX", _STANDING_S)

    async def get_key_check(self) -> bytes | None:
        """As `TokenStore.get_key_check`."""
        agreed: bytes | None = await self._ask("GET", _KEY_CHECK)
        return agreed

    async def agree_on_key(self, check: bytes) -> bytes:
        """As `TokenStore.agree_on_key`."""
        agreed = await self.get_key_check()
        if agreed is None:
            await self._ask("SET", _KEY_CHECK, check, "NX")
            agreed = await self.get_key_check()
        return agreed or b""

    async def close(self) -> None:
        """As `TokenStore.close`."""
        await self._client.aclose()

    async def _ask(self, *command: str | bytes | int) -> Any:
        return await self._told(self._client.execute_command(*command))

    async def _told(self, answer: Awaitable[Any]) -> Any:
        """Wait for an answer; raises StoreFailed."""
        try:
            return await answer
        except (redis_errors.RedisError, OSError) as error:
            raise StoreFailed(_failure(error), self._place) from None  # the error may quote what was sent

    def _token(self, row: Sequence[bytes | None]) -> StoredToken | None:
        record, revoked = row
        if record is None:
            return None
        try:
            token = msgspec.json.decode(record, type=StoredToken)
            return token if revoked is None else msgspec.structs.replace(token, revoked_s=int(revoked))
        except (msgspec.DecodeError, ValueError):
            raise StoreFailed("corrupted", self._place) from None


def _failure(error: Exception) -> Failure:
    text = str(error)
    if "WRONGTYPE" in text:
        return "corrupted"
    if "No connection available" in text:  # of `MAX_CONNECTIONS`
        return "slow"
    return next((failure for kind, failure in _FAILURES if isinstance(error, kind)), "failing")


_PORTS: Final[Mapping[str, int]] = {"redis": 6379, "rediss": 6379}


def without_password(url: str) -> str:
    """Return a URL for people: nothing of its user, password and query."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        host = parts.hostname or "localhost"
        host = f"[{host}]" if ":" in host else host
        return f"{parts.scheme}://{host}:{parts.port or _PORTS.get(parts.scheme, 0)}{parts.path}"
    except ValueError:
        return "(a malformed URL)"
