"""Who calls, by whatever was shown: an API token or a JWT. What a gateway asks, opened from its configuration."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headway.access.api_token import RandomBytes, looks_like_token
from headway.access.config import AccessConfig, JwtConfig, TokensConfig
from headway.access.places import agreed_key, key_path, open_store
from headway.access.server_key import read_or_make_key
from headway.access.token_store import TokenStore
from headway.access.tokens import TokenDirectory
from headway.core.caller import Caller
from headway.core.clock import Clock
from headway.core.errors import ConfigError, Unauthenticated
from headway.core.secret import Secret

if TYPE_CHECKING:  # only where JWT are configured does it need what it imports
    from headway.access.jwt_check import JwtCheck


class Callers:
    """Tells who calls. `store` keeps standings as well; None = API tokens are not taken, and nothing is kept."""

    def __init__(
        self,
        tokens: TokenDirectory | None,
        jwt: "JwtCheck | None",
        store: TokenStore | None = None,
    ) -> None:
        self._tokens = tokens
        self._jwt = jwt
        self.store = store

    async def identify(self, shown: Secret | None) -> Caller:
        """Return who shows this; raises Unauthenticated, Forbidden, or AccessUnavailable where it cannot be told now."""
        if shown is None:
            raise Unauthenticated("This server wants to know who calls: send `authorization: Bearer TOKEN`.")
        if self._tokens is not None and (self._jwt is None or looks_like_token(shown)):
            return await self._tokens.caller(shown)
        if self._jwt is not None:
            return self._jwt.caller(shown)
        raise Unauthenticated("No token is valid here.")

    async def close(self) -> None:
        """Let go of the store."""
        if self._tokens is not None:
            await self._tokens.close()
        if self.store is not None:
            await self.store.close()


async def open_callers(
    config: AccessConfig,
    *,
    clock: Clock,
    now_s: Callable[[], float] = time.time,
    random_bytes: RandomBytes = secrets.token_bytes,
) -> Callers:
    """Open what is configured; raises ConfigError for what cannot be: a store that fails, a wrong key, no keys for JWT."""
    store, tokens, key = None, None, None
    if config.tokens is not None:
        store = open_store(config.tokens.store, timeout_s=config.tokens.timeout_s)
        try:
            key = await agreed_key(store, _key_path(config.tokens), random_bytes)
        except BaseException:
            await store.close()
            raise
        tokens = TokenDirectory(
            store,
            key,
            clock=clock,
            now_s=now_s,
            cache_s=config.tokens.cache_s,
            outage_s=config.tokens.outage_s,
            timeout_s=2 * config.tokens.timeout_s,  # the store's own word for what is wrong says more
        )
    try:
        jwt = None if config.jwt is None else _jwt_check(config.jwt, key, clock, now_s, random_bytes)
    except BaseException:
        if store is not None:
            await store.close()
        raise
    return Callers(tokens, jwt, store)


def _key_path(tokens: TokensConfig) -> Path:
    return key_path(tokens.store, None if tokens.key_file is None else Path(tokens.key_file))


def _jwt_check(
    config: JwtConfig, key: bytes | None, clock: Clock, now_s: Callable[[], float], random_bytes: RandomBytes
) -> "JwtCheck":
    try:
        from headway.access.jwt_check import JwtCheck
    except ImportError as error:
        raise ConfigError('[jwt] needs PyJWT: `make extras`, or pip install "headway[gateway]".') from error
    if key is None:
        key = read_or_make_key(
            key_path(None, None if config.key_file is None else Path(config.key_file)), random_bytes
        )
    return JwtCheck(config, key, clock=clock, now_s=now_s)
