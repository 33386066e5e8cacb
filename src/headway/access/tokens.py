"""Answers a presented API token with its caller, from a store that it asks rarely and can do without for a while.

What the store said counts for `cache_s`: within that a revoked token stops working. Callers in use are asked about again
halfway, in the background, so that they wait for the store only when they are new. Where it fails, those known here go on
for `outage_s`, and the others get 503. Unknown, revoked and expired tokens take the same way and get the same answer.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headway.access.api_token import Digests, is_token
from headway.access.recent import Recent
from headway.access.stored_token import StoredToken
from headway.access.token_store import StoreFailed, TokenStore
from headway.core.caller import Caller
from headway.core.clock import NS_PER_S, Clock
from headway.core.errors import AccessUnavailable, Unauthenticated
from headway.core.secret import Secret

logger = logging.getLogger("headway.access.tokens")

MAX_KNOWN: Final = 10_000
"""Callers remembered: about a kilobyte each."""
MAX_UNKNOWN: Final = 10_000
"""Digests of wrong tokens remembered; apart, so that a flood of guesses pushes out no caller."""
MAX_LOOKUPS: Final = 256
"""At the store at once. Beyond, it counts as failing: waiting in a line for it would help nobody."""
PAUSE_NS: Final = NS_PER_S
"""How long a store that failed is left alone."""

REFUSED: Final = "The token is not valid here: send one that was made with `headway token create`."


@dataclass(frozen=True, slots=True)
class _Known:
    caller: Caller
    expires_s: int | None
    checked_ns: int


class TokenDirectory:
    """Who shows which token. It owns its caches; the store belongs to whoever made it.

    now_s       wall-clock time in seconds since 1970, for expiry alone
    timeout_s   how long a caller waits for the store, which cannot bound a disk that hangs; None = for ever
    """

    def __init__(
        self,
        store: TokenStore,
        server_key: bytes,
        *,
        clock: Clock,
        now_s: Callable[[], float] = time.time,
        cache_s: float = 5.0,
        outage_s: float = 600.0,
        timeout_s: float | None = None,
    ) -> None:
        self._store = store
        self._digests = Digests(server_key)
        self._clock = clock
        self._now_s = now_s
        self._cache_ns = round(cache_s * NS_PER_S)
        self._outage_ns = round(outage_s * NS_PER_S)
        self._timeout_s = timeout_s
        self._known: Recent[_Known] = Recent(MAX_KNOWN)
        self._unknown: Recent[int] = Recent(MAX_UNKNOWN)
        self._lookups: dict[bytes, asyncio.Task[_Known | StoreFailed | None]] = {}
        self._failed: StoreFailed | None = None
        self._paused_until_ns = 0

    async def caller(self, shown: Secret) -> Caller:
        """Return who shows this token; raises Unauthenticated, or AccessUnavailable where that cannot be told now."""
        if not is_token(shown):
            raise Unauthenticated(REFUSED)
        digest = self._digests.of(shown)
        now_ns = self._clock.now_ns()
        known = self._known.get(digest)
        if known is not None and self._goes_without_asking(known, digest, now_ns):
            return self._unless_expired(known)
        refused_ns = self._unknown.get(digest)
        if refused_ns is not None and now_ns - refused_ns < self._cache_ns:
            raise Unauthenticated(REFUSED)
        found = await self._find(digest, now_ns)
        if isinstance(found, StoreFailed):
            if known is None or not self._outlasts_outage(known, now_ns):
                raise AccessUnavailable(
                    f"Who calls cannot be told now: of the store of tokens, {found.told}."
                )
            found = known
        if found is None:
            raise Unauthenticated(REFUSED)
        return self._unless_expired(found)

    async def close(self) -> None:
        """End what is being looked up."""
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        if lookups:
            await asyncio.wait(lookups)

    def _unless_expired(self, known: _Known) -> Caller:
        if known.expires_s is not None and known.expires_s <= self._now_s():
            raise Unauthenticated(REFUSED)
        return known.caller

    def _goes_without_asking(self, known: _Known, digest: bytes, now_ns: int) -> bool:
        """Whether a caller need not wait for the store; has it asked in the background where it is time to."""
        age_ns = now_ns - known.checked_ns
        if age_ns < self._cache_ns // 2:
            return True
        if age_ns >= self._cache_ns and (self._failed is None or not self._outlasts_outage(known, now_ns)):
            return False
        if self._why_not(now_ns) is None:
            self._look_up(digest)
        return True

    def _outlasts_outage(self, known: _Known, now_ns: int) -> bool:
        return now_ns - known.checked_ns < self._outage_ns

    async def _find(self, digest: bytes, now_ns: int) -> _Known | StoreFailed | None:
        if digest not in self._lookups and (failure := self._why_not(now_ns)) is not None:
            return failure
        lookup = self._look_up(digest)
        done, _ = await asyncio.wait(
            (lookup,), timeout=self._timeout_s
        )  # which goes on: others may wait for the same
        if done:
            return lookup.result()
        error = StoreFailed("slow", self._store.place)
        self._note_failure(error)
        return error

    def _why_not(self, now_ns: int) -> StoreFailed | None:
        """Return why the store is not asked now, None if it is."""
        if self._failed is not None and now_ns < self._paused_until_ns:
            return self._failed
        return StoreFailed("slow", self._store.place) if len(self._lookups) >= MAX_LOOKUPS else None

    def _look_up(self, digest: bytes) -> "asyncio.Task[_Known | StoreFailed | None]":
        """Ask the store, once for all who want to know; the task never raises."""
        lookup = self._lookups.get(digest)
        if lookup is None:
            lookup = self._lookups[digest] = asyncio.create_task(self._ask(digest))
            lookup.add_done_callback(lambda _: self._lookups.pop(digest, None))
        return lookup

    async def _ask(self, digest: bytes) -> _Known | StoreFailed | None:
        asked_ns = self._clock.now_ns()  # the answer may be as old as the question
        try:
            token = await self._store.find_by_digest(digest)
        except StoreFailed as error:
            self._note_failure(error)
            return error
        if self._failed is not None:
            self._failed = None
            logger.info("the store of tokens answers again")
        if token is None or not self._is_valid(token, digest):
            self._known.drop(digest)
            self._unknown.put(digest, asked_ns)
            return None
        known = _Known(token.caller(), token.expires_s, asked_ns)
        self._known.put(digest, known)
        self._unknown.drop(digest)
        return known

    def _is_valid(self, token: StoredToken, digest: bytes) -> bool:
        if not hmac.compare_digest(token.digest, digest):
            return False
        expired = token.expires_s is not None and token.expires_s <= self._now_s()
        if token.revoked_s is not None or expired:
            why = "revoked" if token.revoked_s is not None else "expired"
            logger.info("a token is %s and was shown", why, extra={"token_id": token.token_id})
            return False
        return True

    def _note_failure(self, error: StoreFailed) -> None:
        self._paused_until_ns = self._clock.now_ns() + PAUSE_NS
        if self._failed is None or self._failed.failure != error.failure:
            logger.warning("%s Callers known here go on, others get 503.", error)
        self._failed = error
