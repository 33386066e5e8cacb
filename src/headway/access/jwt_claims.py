"""What a JWT's claims say of its caller, once its signature is known to be right. Pure; it knows no keys.

RFC 7519, 4.1: issuer, audience, expiry and "not before" are checked as it says; expiry and subject must be there.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, TypeVar, get_args

import msgspec

from headway.access.config import ClaimPath, JwtConfig
from headway.access.stored_token import check_limits, check_name
from headway.core.caller import Caller, CallerLimits, Kind
from headway.core.errors import ConfigError, Forbidden
from headway.core.request import ServiceClass

Claims = Mapping[str, object]
V = TypeVar("V", bound=str)

MAX_SUBJECT_CHARS: Final = 1_000
LATEST_S: Final = 2.0**53
"""No clock will show it; later ones are no numbers of seconds."""
_CLASSES: Final[Mapping[str, ServiceClass]] = {name: name for name in get_args(ServiceClass)}
_KINDS: Final[Mapping[str, Kind]] = {name: name for name in get_args(Kind)}


class NotValid(Exception):
    """A JWT that does not count now, or here; its text says why, and quotes nothing of it."""


def valid_until_s(claims: Claims, config: JwtConfig, now_s: float) -> float:
    """Return until when a JWT counts, leeway included, in seconds since 1970; raises NotValid."""
    audiences = claims.get("aud")
    allowed = {config.audience} if isinstance(config.audience, str) else set(config.audience)
    given = audiences if isinstance(audiences, list) else [audiences]
    if claims.get("iss") != config.issuer:
        raise NotValid("`iss` is not the configured issuer")
    if not any(isinstance(name, str) and name in allowed for name in given):
        raise NotValid("`aud` names none of the configured audiences")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARS:
        raise NotValid("`sub` is missing, or no text of ordinary length")
    expires_s = _time_s(claims.get("exp"))
    if expires_s is None:
        raise NotValid("`exp` is missing, or no time")
    if expires_s + config.leeway_s <= now_s:
        raise NotValid("`exp` is over")
    if "nbf" in claims:
        begins_s = _time_s(claims["nbf"])
        if begins_s is None or begins_s - config.leeway_s > now_s:
            raise NotValid("`nbf` is still to come, or no time")
    return expires_s + config.leeway_s


def caller_of(claims: Claims, config: JwtConfig, server_key: bytes) -> Caller:
    """Return who a valid JWT says that calls; raises Forbidden, naming the claim, for one that says what nobody can be."""
    names, defaults = config.claims, config.defaults
    tenant = _text(claims, names.tenant)
    limits = CallerLimits(
        requests_per_s=_number(claims, names.requests_per_s, defaults.requests_per_s),
        tokens_per_min=_whole(claims, names.tokens_per_min, defaults.tokens_per_min),
        max_concurrent=_whole(claims, names.max_concurrent, defaults.max_concurrent),
    )
    user = _text(claims, names.user)
    if user is None:
        raise Forbidden(f"The JWT has no claim {_shown(names.user)}, which names its user.")
    tenant = defaults.tenant if tenant is None else tenant
    try:
        check_name(_shown(names.user).strip("`"), user)
        check_name(_shown(names.tenant or "tenant").strip("`"), tenant, may_be_empty=True)
        check_limits(limits)
    except ConfigError as error:
        raise Forbidden(f"The JWT's claims are no caller's: {error.message}") from None
    return Caller(
        token_id=public_id_of(server_key, str(claims["iss"]), str(claims["sub"])),
        tenant=tenant,
        user=user,
        service_class=_meaning(claims, names.class_, {**_CLASSES, **config.classes}, defaults.class_),
        kind=_meaning(claims, names.kind, {**_KINDS, **config.kinds}, defaults.kind),
        limits=limits,
    )


def public_id_of(server_key: bytes, issuer: str, subject: str) -> str:
    """Return the public name of whoever shows JWT of this issuer and subject: always the same one, and it tells neither."""
    # The zero keeps it apart from an API token's digest under the same key, and issuer from subject.
    told = b"jwt\0" + issuer.encode() + b"\0" + subject.encode("utf-8", "surrogatepass")
    return f"jwt_{hmac.digest(server_key, told, hashlib.sha256)[:6].hex()}"


def _time_s(value: object) -> float | None:
    """Return a NumericDate (RFC 7519, 2), None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= LATEST_S else None  # no NaN does


def _found(claims: Claims, path: ClaimPath | None) -> object:
    """Return the claim at a path, None where it is not there, or null."""
    if path is None:
        return None
    value: object = claims
    for name in (path,) if isinstance(path, str) else path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(claims: Claims, path: ClaimPath | None) -> str | None:
    value = _found(claims, path)
    if value is None or isinstance(value, str):
        return value
    raise Forbidden(f"The JWT's claim {_shown(path)} must be a text.")


def _number(claims: Claims, path: ClaimPath | None, default: float | None) -> float | None:
    value = _found(claims, path)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Forbidden(f"The JWT's claim {_shown(path)} must be a number.")
    return value


def _whole(claims: Claims, path: ClaimPath | None, default: int | None) -> int | None:
    value = _found(claims, path)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise Forbidden(f"The JWT's claim {_shown(path)} must be a whole number.")
    return value


def _meaning(claims: Claims, path: ClaimPath | None, meanings: Mapping[str, V], default: V) -> V:
    value = _text(claims, path)
    if value is None:
        return default
    if value not in meanings:
        raise Forbidden(f"The JWT's claim {_shown(path)} has a value that means nothing here.")
    return meanings[value]


def _shown(path: ClaimPath | None) -> str:
    return msgspec.json.encode(path).decode() if isinstance(path, tuple) else f"`{path}`"
