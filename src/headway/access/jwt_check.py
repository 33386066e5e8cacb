"""JWT as the other way in: whether one is right, and whose. Needs the extra `gateway`.

The algorithm is the configured one for the key, never the JWT's wish: `none` and a public key taken for a secret have no
way in (RFC 8725, 2.1). A JWT found right is remembered, by a digest of all of it, until it expires or the keys change.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec
from jwt import PyJWS
from jwt.exceptions import PyJWTError

from headway.access.config import JwtConfig
from headway.access.jwt_claims import NotValid, caller_of, valid_until_s
from headway.access.jwt_keys import JwtKeys
from headway.access.recent import Recent
from headway.core.caller import Caller
from headway.core.clock import Clock
from headway.core.errors import Unauthenticated
from headway.core.secret import Secret

logger = logging.getLogger("headway.access.jwt")

MAX_KNOWN: Final = 10_000
REFUSED: Final = "The token is not valid here: send one of the configured issuer that has not expired."


class JwtCheck:
    """Checks JWT of one issuer.

    server_key   under which callers get their public names
    now_s        wall-clock time in seconds since 1970, which expiry is in
    """

    def __init__(
        self,
        config: JwtConfig,
        server_key: bytes,
        *,
        clock: Clock,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Read the keys; raises ConfigError."""
        self._config = config
        self._server_key = server_key
        self._now_s = now_s
        self._keys = JwtKeys(config, clock)
        self._generation = self._keys.generation
        self._jws = PyJWS(options={"enforce_minimum_key_length": True})
        self._known: Recent[tuple[Caller, float]] = Recent(MAX_KNOWN)

    def caller(self, shown: Secret) -> Caller:
        """Return who shows this JWT; raises Unauthenticated, or Forbidden for a right one whose claims are no caller's."""
        self._keys.refresh()
        if self._generation != self._keys.generation:
            self._generation = self._keys.generation
            self._known.clear()
        text = shown.reveal()
        digest = hashlib.sha256(text.encode()).digest()
        known = self._known.get(digest)
        if known is not None:
            if self._now_s() < known[1]:
                return known[0]
            self._known.drop(digest)
            raise Unauthenticated(REFUSED)
        try:
            claims = self._signed_claims(text)
            ends_s = valid_until_s(claims, self._config, self._now_s())
        except NotValid as error:
            logger.debug("a JWT is refused: %s", error)
            raise Unauthenticated(REFUSED) from None
        caller = caller_of(claims, self._config, self._server_key)
        self._known.put(digest, (caller, ends_s))
        return caller

    def _signed_claims(self, text: str) -> dict[str, object]:
        """Return the claims of a JWT whose signature is right; raises NotValid for any other text."""
        if text.count(".") != 2:
            raise NotValid("it has not three parts")
        try:
            header = self._jws.get_unverified_header(text)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if not isinstance(algorithm, str) or algorithm not in self._config.algorithms:
                raise NotValid("`alg` is none of the configured algorithms")
            key = self._keys.find(key_id, algorithm)
            if key is None:
                raise NotValid("no configured key fits its `kid` and `alg`")
            payload = self._jws.decode_complete(text, key, algorithms=[algorithm])["payload"]
            return msgspec.json.decode(payload, type=dict[str, object])
        except (PyJWTError, msgspec.DecodeError, ValueError, RecursionError) as error:
            raise NotValid(type(error).__name__) from None  # its message may quote the JWT
