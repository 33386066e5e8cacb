"""API tokens for people and for programs: a table, sentences, JSON. It has no token to print, only what is kept of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from headway.access.stored_token import StoredToken
from headway.cli.table import aligned
from headway.core.clock import rfc3339

_HEAD: Final = (
    "ID",
    "TENANT",
    "USER",
    "CLASS",
    "KIND",
    "REQUESTS/S",
    "TOKENS/MIN",
    "AT ONCE",
    "STATE",
    "CREATED",
    "EXPIRES",
    "NOTE",
)
_ALIGNMENTS: Final = "<<<<<>>><<<<"
_MAX_NOTE_CHARS: Final = 30


def state_of(token: StoredToken, now_s: float) -> str:
    """Return whether a token is `valid`, `revoked` or `expired`."""
    if token.revoked_s is not None:
        return "revoked"
    return "expired" if token.expires_s is not None and token.expires_s <= now_s else "valid"


def table(tokens: Sequence[StoredToken], now_s: float) -> Iterator[str]:
    """Yield the lines of a table; of no tokens only its head."""
    return aligned([_HEAD, *(_row(token, now_s) for token in tokens)], _ALIGNMENTS)


def as_json(token: StoredToken, now_s: float) -> dict[str, object]:
    """Return a token's fields for JSON; times are RFC 3339, in UTC."""
    return {
        "id": token.token_id,
        "tenant": token.tenant,
        "user": token.user,
        "class": token.service_class,
        "kind": token.kind,
        "requests_per_s": token.limits.requests_per_s,
        "tokens_per_min": token.limits.tokens_per_min,
        "max_concurrent": token.limits.max_concurrent,
        "note": token.note,
        "state": state_of(token, now_s),
        "created": _time(token.created_s),
        "expires": _time(token.expires_s),
        "revoked": _time(token.revoked_s),
    }


def standing_of(standing: bytes | None) -> object:
    """Return what a server keeps on how somebody behaves; None if nothing, or nothing that can be read."""
    try:
        return None if standing is None else msgspec.json.decode(standing)
    except msgspec.DecodeError:
        return None


def described(token_id: str, token: StoredToken | None, standing: object, now_s: float) -> Iterator[str]:
    """Yield lines about one token, and about how its user stands."""
    fields: dict[str, object] = {"id": token_id} if token is None else as_json(token, now_s)
    default = "the server's"
    for limit in ("requests_per_s", "tokens_per_min", "max_concurrent"):
        if fields.get(limit, default) is None:
            fields[limit] = default
    if token is not None:
        fields["tenant"] = token.tenant or "the default tenant"
        fields["expires"] = fields["expires"] or "never"
    rows = [(f"{name}:", _shown(value)) for name, value in fields.items() if value not in (None, "")]
    yield from aligned(rows, "<<")
    if standing is None:
        yield "standing: no server has kept any"
    elif isinstance(standing, Mapping):
        yield "standing:"
        yield from _standing_lines(standing)
    else:
        yield f"standing: {_shown(standing)}"


def _standing_lines(standing: Mapping[object, object]) -> Iterator[str]:
    """Yield lines of an object whose form is the server's: values first, then its lists, an item a line."""
    lists = {name: value for name, value in standing.items() if isinstance(value, list)}
    rows = [
        (f"{name}:", _told(value))
        for name, value in standing.items()
        if name not in lists and value is not None
    ]
    yield from (f"  {line}" for line in (aligned(rows, "<<") if rows else ()))
    for name, items in lists.items():
        yield f"  {name}:{'' if items else ' nothing'}"
        # What is meant for people stands under `words`.
        yield from (
            f"    {_shown(item.get('words', item) if isinstance(item, Mapping) else item)}" for item in items
        )


def _row(token: StoredToken, now_s: float) -> tuple[str, ...]:
    limits = token.limits
    note = token.note if len(token.note) <= _MAX_NOTE_CHARS else f"{token.note[: _MAX_NOTE_CHARS - 1]}…"
    return (
        token.token_id,
        token.tenant or "-",
        token.user,
        token.service_class,
        token.kind,
        "-" if limits.requests_per_s is None else f"{limits.requests_per_s:g}",
        "-" if limits.tokens_per_min is None else f"{limits.tokens_per_min:,}",
        "-" if limits.max_concurrent is None else f"{limits.max_concurrent:,}",
        state_of(token, now_s),
        _date(token.created_s),
        _date(token.expires_s),
        note,
    )


def _told(value: object) -> str:
    """Write a value; of an object its fields, one after another."""
    if not isinstance(value, Mapping):
        return _shown(value)
    fields = {_shown(name): part for name, part in value.items() if part is not None}
    if any(isinstance(part, Mapping) for part in fields.values()):
        return "; ".join(f"{name}: {_told(part)}" for name, part in fields.items())
    return ", ".join(f"{name} {_shown(part)}" for name, part in fields.items()) or "none"


def _shown(value: object) -> str:
    """Write a value for a terminal, which it must not control."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"  # no 1.5e+03
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def _date(seconds: int | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)
