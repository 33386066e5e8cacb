"""Who is let in, and how much he may: joins `access` and `flow` for the gateway. It knows no endpoint.

Without an access file nobody is asked who he is, and nobody has limits: such a server is for one machine.
"""

import hashlib
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from types import TracebackType
from typing import Final, Protocol

from headway.core.caller import NOBODY, Caller
from headway.core.errors import Forbidden, HeadwayError, OverBudget, RequestError, Unauthenticated
from headway.core.events import Hook, RiskAssessed, TokensSettled
from headway.core.hooks import emit
from headway.core.quota import NO_QUOTAS, Quotas
from headway.core.secret import Secret
from headway.flow.calls import LimitedCall
from headway.flow.limits import Admission, Limits
from headway.flow.signals import Signal
from headway.gateway.standings import Standings
from headway.wire.credentials import parse_credentials

Headers = Iterable[tuple[bytes, bytes]]

_FINGERPRINT: Final = (b"user-agent", b"x-stainless-lang", b"x-stainless-os", b"x-stainless-arch")
"""What tells one client program from another; an SDK's version is in its user agent."""
_FINGERPRINT_BYTES: Final = 512
"""Of each of them: callers choose them, and what they show is kept."""
_NETWORK_BITS: Final = 64
"""Of an IPv6 address: who has one has all that begin so (RFC 6177)."""


def network_of(address: str) -> str:
    """Return whom an address tells apart: itself, or of IPv6 its network. What is no address is returned as it is."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        mapped = found.ipv4_mapped
        return str(IPv6Network((int(found), _NETWORK_BITS), strict=False)) if mapped is None else str(mapped)
    return str(found)


def is_malformed(error: HeadwayError) -> bool:
    """Whether an error tells that its request made no sense: not one of a limit, of whosever, nor of what is gone."""
    return (
        isinstance(error, RequestError)
        and error.status not in (410, 429)
        and not isinstance(error, OverBudget)
    )


@lru_cache(maxsize=1024)
def _fingerprint(shown: bytes) -> str:
    return hashlib.blake2b(shown, digest_size=8).hexdigest()


class Identifier(Protocol):
    """Tells who shows a credential: `access.callers.Callers`."""

    async def identify(self, shown: Secret | None) -> Caller:
        """Return him; raises Unauthenticated, Forbidden, AccessUnavailable."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


class Door:
    """One gateway's door.

    callers         None = nobody is asked who he is
    limits          None = nobody has any
    region_header   of a proxy that says where a client is; None = not known
    standings       keeps how callers stand, for operators; None = nobody does
    tell            hears of risks and of tokens that were settled
    strangers       limits of those who fail to say who they are; None = `limits`, where callers are accounted, too
    """

    def __init__(
        self,
        callers: Identifier | None = None,
        limits: Limits | None = None,
        region_header: str | None = None,
        standings: Standings | None = None,
        tell: Hook | None = None,
        strangers: Limits | None = None,
    ) -> None:
        self.callers = callers
        self.limits = limits
        self._strangers = limits if strangers is None else strangers
        self._standings = standings
        self._tell = tell
        self._region_header = None if region_header is None else region_header.lower().encode()

    async def caller(self, headers: Headers, address: str) -> Caller:
        """Return who sends a request with these headers; raises Unauthenticated, Forbidden, AccessUnavailable.

        `address`: where from. Who fails to say who he is is slowed by its network, as that is all that is known of him.
        """
        if self.callers is None:
            return NOBODY
        try:
            return await self.callers.identify(parse_credentials(headers))
        except (Unauthenticated, Forbidden):
            if self._strangers is not None:
                stranger = Caller(user=f"address {network_of(address)}")
                await self._strangers.note(stranger, Signal("failed_auth"))
                await self._strangers.pace(stranger)  # who guesses on and on gets 429 instead
            raise

    def call(self, caller: Caller, headers: Headers) -> "AbstractAsyncContextManager[Call]":
        """Let one call in, and settle it at its end unless somebody else will. Raises RateLimited, TooManyConcurrent.

        What it raises itself tells of its caller, too.
        """
        return _Within(self, caller, headers)

    async def admit(self, caller: Caller, headers: Headers) -> "Call":
        """Do the first half of `call`."""
        if self.limits is None:
            return Call()
        call = Call(LimitedCall(self.limits, await self.limits.admit(caller)), self._tell)
        try:
            for signal in self._signals(headers):
                await self.limits.note(caller, signal)
        except BaseException:
            await self.leave(call)
            raise
        return call

    async def leave(self, call: "Call", error: BaseException | None = None) -> None:
        """Do the other half of `call`; `error`: what it raised."""
        admission = call.admission
        if admission is None or self.limits is None:
            return
        try:
            if isinstance(error, HeadwayError) and is_malformed(error):
                await self.note_malformed(admission.caller)
        finally:
            # Told before the store is asked: a cancellation would cut that off.
            emit(self._tell, RiskAssessed(risk=admission.risk))
            if not call.is_kept:
                await call.end()
            if self._standings is not None and admission.risk > 0:
                self._standings.note(admission.caller, self.limits)

    async def pace(self, caller: Caller) -> None:
        """Take a request of a caller's rate, for what is no call. Raises RateLimited."""
        if self.limits is not None:
            await self.limits.pace(caller)

    async def note_malformed(self, caller: Caller) -> None:
        """A request made no sense."""
        if self.limits is not None:
            await self.limits.note(caller, Signal("malformed"))

    async def close(self) -> None:
        """Let go of stores."""
        if self._standings is not None:
            await self._standings.close()
        if self.limits is not None:
            await self.limits.aclose()
        if self._strangers is not None and self._strangers is not self.limits:
            await self._strangers.aclose()
        if self.callers is not None:
            await self.callers.close()

    def _signals(self, headers: Headers) -> list[Signal]:
        found = dict(headers)
        shown = b"\n".join(found.get(name, b"")[:_FINGERPRINT_BYTES] for name in _FINGERPRINT)
        signals = [Signal("fingerprint", _fingerprint(shown))]
        if self._region_header is not None and (region := found.get(self._region_header)):
            signals.append(Signal("region", region.decode("latin-1")[:64]))
        return signals


class _Within:
    """Within, a call is let in. contextlib's own takes several times as long, which every call would."""

    __slots__ = ("_call", "_caller", "_door", "_headers")

    def __init__(self, door: Door, caller: Caller, headers: Headers) -> None:
        self._door = door
        self._caller = caller
        self._headers = headers

    async def __aenter__(self) -> "Call":
        self._call = await self._door.admit(self._caller, self._headers)
        return self._call

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._door.leave(self._call, error)


class Call:
    """A call that was let in. `None`: without limits. `is_kept`: it outlives its connection, and whoever kept it ends it."""

    __slots__ = ("_call", "_num_reserved", "_tell", "is_kept")

    def __init__(self, call: LimitedCall | None = None, tell: Hook | None = None) -> None:
        self._call = call
        self._tell = tell
        self._num_reserved = 0
        self.is_kept = False

    @property
    def admission(self) -> Admission | None:
        """How it was let in."""
        return None if self._call is None else self._call.admission

    @property
    def quotas(self) -> Quotas:
        """What its caller has left."""
        return NO_QUOTAS if self._call is None else self._call.quotas

    async def reserve(self, num_tokens: int) -> None:
        """Take what it may use at most, once. Raises TokensExhausted, OverBudget."""
        if self._call is not None:
            await self._call.reserve(num_tokens)
            self._num_reserved = num_tokens

    def use(self, num_tokens: int) -> None:
        """It has used so many by now."""
        if self._call is not None:
            self._call.num_used = num_tokens

    def note_answer(self, *, abandoned: bool) -> None:
        """Its answer was left before its end, or read to it."""
        if self._call is not None:
            self._call.abandoned = abandoned

    async def end(self) -> None:
        """Settle."""
        if self._call is None:
            return
        await self._call.end()
        if self._num_reserved:
            emit(
                self._tell,
                TokensSettled(
                    reserved=self._num_reserved,
                    used=self._call.num_used,
                    service_class=self._call.admission.caller.service_class,
                ),
            )
