"""The file of `headway serve --access`: who may call ([tokens], [jwt]) and how much ([limits]). It joins the two parts."""

from pathlib import Path

import msgspec

from headway.access.callers import Callers, open_callers
from headway.access.config import AccessConfig, parse_access, read_toml
from headway.core.clock import Clock
from headway.core.errors import ConfigError
from headway.flow.build import open_limits
from headway.flow.config import LimitsConfig, parse_limits
from headway.gateway.door import Door


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    access: AccessConfig
    limits: LimitsConfig


def read_access_file(path: Path) -> AccessSettings:
    """Read and check the file; raises ConfigError that names the key, so that nothing starts with half of its limits."""
    tables = read_toml(path)
    limits = tables.pop("limits", {})
    if not isinstance(limits, dict):
        raise ConfigError("`limits` must be a table: [limits].")
    settings = AccessSettings(access=parse_access(tables, path.parent), limits=parse_limits(limits))
    if settings.access.tokens is None and settings.access.jwt is None:
        raise ConfigError(
            f"{path} lets nobody in: it needs a table [tokens] or [jwt], which may be empty for [tokens]."
        )
    return settings


async def open_door(settings: AccessSettings | None, clock: Clock) -> Door:
    """Open stores and limits; None = everybody is let in, without limits. Raises ConfigError."""
    if settings is None:
        return Door()
    callers: Callers = await open_callers(settings.access, clock=clock)
    try:
        limits = await open_limits(settings.limits, clock)
    except BaseException:
        await callers.close()
        raise
    return Door(callers, limits, settings.limits.region_header)
