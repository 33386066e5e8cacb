"""The `[limits]` table of a configuration file. It knows no file: a table comes in, checked settings come out."""

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from headway.core.errors import ConfigError
from headway.flow.signals import SIGNALS, SignalKind

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Weight = Annotated[float, msgspec.Meta(ge=0, le=2)]
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.1 and 5.6.2."""


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much callers may who have no limits of their own.

    requests_per_s  of a user who behaves
    floor_per_s     what the worst behaviour leaves him, or his own rate if that is lower; not said, at most requests_per_s
    burst_s         so many seconds' requests may come at once
    tokens_per_min  of prompts and answers together; None = no limit
    max_concurrent  calls at once; None = no limit
    max_users       whose state is kept in memory
    redis_url       where several gateways keep it together; None = in memory
    region_header   request header of a proxy in front that says where a client is; None = not known
    weights         of signals, by name, instead of their own; 0 = off
    """

    requests_per_s: _Positive = 100.0
    floor_per_s: _Positive = 10.0
    burst_s: _Positive = 1.0
    tokens_per_min: _Count | None = None
    max_concurrent: _Count | None = None
    max_users: _Count = 100_000
    redis_url: str | None = None
    region_header: str | None = None
    weights: dict[SignalKind, _Weight] = {}

    def __repr__(self) -> str:
        """Name all but the URL, which may hold a password."""
        told = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "redis_url")
        return f"LimitsConfig({', '.join(f'{name}={value!r}' for name, value in told)})"


def parse_limits(table: Mapping[str, object]) -> LimitsConfig:
    """Return the settings of a `[limits]` table; raises ConfigError that names the key."""
    if unknown := sorted(set(table) - set(LimitsConfig.__struct_fields__)):
        known = ", ".join(LimitsConfig.__struct_fields__)
        raise ConfigError(f"limits.{unknown[0]} is no setting; there are {known}.")
    weights = table.get("weights", {})
    if isinstance(weights, Mapping) and (strange := sorted(set(map(str, weights)) - set(SIGNALS))):
        raise ConfigError(f"limits.weights.{strange[0]} is no signal; there are {', '.join(SIGNALS)}.")
    try:
        config = msgspec.convert(table, LimitsConfig)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        raise ConfigError(f"{_key(where, table)}: {what}.") from error
    if "floor_per_s" not in table:  # whoever grants two a second need not know that there is a floor
        config = msgspec.structs.replace(config, floor_per_s=min(config.floor_per_s, config.requests_per_s))
    _check(config)
    return config


def _key(where: str, table: Mapping[str, object]) -> str:
    """Return the key that msgspec's path points to; of a dict's values it names only the dict: then by looking."""
    name = re.sub(r"[^A-Za-z_.]", "", where.removeprefix("$").split("[")[0]).strip(".")
    values = table.get(name)
    if "[" in where and isinstance(values, Mapping):
        for key, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
                return f"limits.{name}.{key}"
    return f"limits.{name}"


def _check(config: LimitsConfig) -> None:
    if config.floor_per_s > config.requests_per_s:
        raise ConfigError(
            f"limits.floor_per_s: {config.floor_per_s:g} is more than limits.requests_per_s, "
            f"{config.requests_per_s:g}; a floor lies below."
        )
    for name in ("requests_per_s", "floor_per_s", "burst_s"):
        if getattr(config, name) == float("inf"):
            raise ConfigError(f"limits.{name}: a finite number is needed.")
    if config.redis_url is not None:
        _check_url(config.redis_url)
    if config.region_header is not None and not _FIELD_NAME.fullmatch(config.region_header):
        raise ConfigError(
            "limits.region_header: it must be the name of a request header, such as cf-ipcountry."
        )


def _check_url(text: str) -> None:
    """Raise ConfigError without the URL, which may hold a password."""
    try:
        url = urlsplit(text)
        known = (
            (url.hostname and url.port != 0) if url.scheme in ("redis", "rediss") else url.scheme == "unix"
        )
    except ValueError:
        known = False
    if not known:
        raise ConfigError("limits.redis_url: it must look like redis://HOST:PORT/0, or rediss:// or unix://.")
