"""The file of `headway serve --access`: who may call ([tokens], [jwt]) and how much ([limits]). It joins the two parts."""

import time
from pathlib import Path
from typing import Final

import msgspec

from headway.access.callers import Callers, open_callers
from headway.access.config import AccessConfig, parse_access, read_toml
from headway.core.clock import Clock
from headway.core.errors import ConfigError
from headway.core.events import FlowDegraded, Hook
from headway.flow.build import open_limits
from headway.flow.config import LimitsConfig, parse_limits
from headway.flow.local import LocalLimits
from headway.gateway.door import Door
from headway.gateway.standings import Standings

_TABLES: Final = ("tokens", "jwt", "limits")
MAX_STRANGERS: Final = 10_000
"""Networks remembered from which somebody failed to say who he is; about a kilobyte each."""


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    access: AccessConfig
    limits: LimitsConfig


def read_access_file(path: Path) -> AccessSettings:
    """Read and check the file; raises ConfigError that names the key, so that nothing starts with half of its limits."""
    tables = read_toml(path)
    if unknown := sorted(set(tables) - set(_TABLES)):
        raise ConfigError(f"`{unknown[0]}` is no setting; there are the tables [{'], ['.join(_TABLES)}].")
    limits = tables.pop("limits", {})
    if not isinstance(limits, dict):
        raise ConfigError("`limits` must be a table: [limits].")
    settings = AccessSettings(access=parse_access(tables, path.parent), limits=parse_limits(limits))
    if settings.access.tokens is None and settings.access.jwt is None:
        raise ConfigError(
            f"{path} lets nobody in: it needs a table [tokens] or [jwt], which may be empty for [tokens]."
        )
    return settings


async def open_door(settings: AccessSettings | None, clock: Clock, tell: Hook) -> Door:
    """Open stores and limits; None = everybody is let in, without limits. Raises ConfigError.

    `tell` hears of risks, of tokens settled, and of shared limits that are lost or back.
    """
    if settings is None:
        return Door()

    def changed(degraded: bool, reason: str) -> None:
        tell(FlowDegraded(degraded=degraded, reason=reason))

    callers: Callers = await open_callers(settings.access, clock=clock)
    try:
        limits = await open_limits(settings.limits, clock, on_change=changed)
    except BaseException:
        await callers.close()
        raise
    store = callers.store
    standings = None if store is None else Standings(store.put_standing, clock, time.time)
    strangers = _strangers(settings.limits, clock)
    return Door(callers, limits, settings.limits.region_header, standings, tell, strangers)


def _strangers(config: LimitsConfig, clock: Clock) -> LocalLimits:
    """Return limits of those who fail to say who they are: apart, so that they neither push callers out nor burden Redis."""
    few = min(config.max_users, MAX_STRANGERS)
    return LocalLimits(msgspec.structs.replace(config, redis_url=None, max_users=few), clock)
