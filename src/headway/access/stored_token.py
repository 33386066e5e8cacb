"""What is kept of a token: whose it is, what it may, how long. Wall-clock times are whole seconds since 1970."""

from typing import Annotated, Final

import msgspec

from headway.core.caller import Caller, CallerLimits, Kind
from headway.core.errors import ConfigError
from headway.core.request import ServiceClass

MAX_NAME_CHARS: Final = 128
NAME_PATTERN: Final = f"^[!-~]{{1,{MAX_NAME_CHARS}}}$"
"""Of a tenant or a user: visible ASCII without spaces, so that no name can forge a field of a log line."""
MAX_NOTE_CHARS: Final = 500
MAX_REQUESTS_PER_S: Final = 1e6
MAX_TOKENS_PER_MIN: Final = 10**12
MAX_CONCURRENT: Final = 10**6

_Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_Tenant = Annotated[str, msgspec.Meta(pattern=f"^$|{NAME_PATTERN}")]
_Note = Annotated[str, msgspec.Meta(max_length=MAX_NOTE_CHARS)]


class StoredToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token, as a store keeps it.

    token_id   its public name
    digest     what is kept of the token itself (`api_token.digest_of`)
    note       of whoever made it, for people
    expires_s  None = it goes on until it is revoked
    revoked_s  None = it has not been
    """

    token_id: str
    digest: bytes
    tenant: _Tenant
    user: _Name
    service_class: ServiceClass
    kind: Kind
    limits: CallerLimits
    note: _Note
    created_s: int
    expires_s: int | None = None
    revoked_s: int | None = None

    def __repr__(self) -> str:
        return f"StoredToken({self.token_id})"

    def caller(self) -> Caller:
        """Return whoever shows this token."""
        return Caller(
            token_id=self.token_id,
            tenant=self.tenant,
            user=self.user,
            service_class=self.service_class,
            kind=self.kind,
            limits=self.limits,
        )


def check_name(key: str, value: str, *, may_be_empty: bool = False) -> None:
    """Raise ConfigError, which names `key`, unless `value` is the name of a tenant or a user."""
    try:
        msgspec.convert(value, _Tenant if may_be_empty else _Name)
    except msgspec.ValidationError:
        raise ConfigError(
            f"`{key}` must be 1 to {MAX_NAME_CHARS} visible ASCII characters, without spaces."
        ) from None


def check_note(note: str) -> None:
    """Raise ConfigError for a note that is too long, or would move a terminal's cursor."""
    if len(note) > MAX_NOTE_CHARS or not note.isprintable():
        raise ConfigError(f"`note` must be at most {MAX_NOTE_CHARS} printable characters.")


def check_limits(limits: CallerLimits) -> CallerLimits:
    """Return the limits; raises ConfigError, which names the key, for one that lets nothing pass, or is no number."""
    rate = limits.requests_per_s
    if rate is not None and not 0 < rate <= MAX_REQUESTS_PER_S:
        raise ConfigError(f"`requests_per_s` must be over 0 and at most {MAX_REQUESTS_PER_S:.0f}.")
    for key, value, most in (
        ("tokens_per_min", limits.tokens_per_min, MAX_TOKENS_PER_MIN),
        ("max_concurrent", limits.max_concurrent, MAX_CONCURRENT),
    ):
        if value is not None and not 1 <= value <= most:
            raise ConfigError(f"`{key}` must be from 1 to {most}.")
    return limits
