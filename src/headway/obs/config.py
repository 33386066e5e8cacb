"""What is observed, and how closely; parsed once and frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headway.core.caller import Kind

ALARM_MS: Final[Mapping[Kind, float]] = {"admin": 50, "user": 200, "service": 200}
"""Of admins and users as issue 7 has them. A service waits on behalf of users, so it has theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConfig:
    """Which API tokens have series of their own.

    watched    public ids that always have; each costs up to some hundred series
    num_top    of the others, so many that are used most
    alarm_ms   from when on a call is slow, by its token's kind
    """

    watched: frozenset[str] = frozenset()
    num_top: int = 32
    alarm_ms: Mapping[Kind, float] = field(default_factory=lambda: ALARM_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConfig:
    """Where spans go, and how many.

    endpoint       base URL of an OTLP collector (HTTP); None = none is configured
    sample_ratio   share of calls that have one, besides those that always have, in ordinary traffic (`sampling.ratio_in`)
    """

    endpoint: str | None = None
    sample_ratio: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ObsConfig:
    """Everything about metrics and traces."""

    tokens: TokenConfig = field(default_factory=TokenConfig)
    traces: TraceConfig = field(default_factory=TraceConfig)
