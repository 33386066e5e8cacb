"""What latency is good enough: parsing `ttft=480ms,itl=50ms`, and whether an exchange meets it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.exchange import Exchange
from headway.lab.latency import e2e_ns, itl_ns, tpot_ns, ttft_ns

_UNITS_NS: Final = {"ms": NS_PER_MS, "s": NS_PER_S, "us": 1_000}
_LIMIT: Final = re.compile(r"([a-z0-9]+)\s*=\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits that one request must keep, all of them; None = no limit. ITL: the request's mean over its tokens."""

    ttft_ns: int | None = None
    itl_ns: int | None = None
    tpot_ns: int | None = None
    e2e_ns: int | None = None


_FIGURES: Final[dict[str, Callable[[Exchange], float | None]]] = {
    "ttft_ns": ttft_ns,
    "itl_ns": itl_ns,
    "tpot_ns": tpot_ns,
    "e2e_ns": e2e_ns,
}


def parse_slo(text: str) -> Slo:
    """Parse limits such as `ttft=480ms,itl=50ms,e2e=2s`, in ms, s or us; raises ConfigError."""
    names = [field.name.removesuffix("_ns") for field in fields(Slo)]
    limits: dict[str, int] = {}
    for part in text.split(","):
        match = _LIMIT.fullmatch(part.strip())
        if match is None or match[3] not in _UNITS_NS:
            raise ConfigError(
                f"an SLO is written as ttft=480ms,itl=50ms (units: ms, s, us), not {part.strip()!r}"
            )
        name = match[1]
        if name not in names:
            raise ConfigError(f"an SLO limits one of {', '.join(names)}, not {name}")
        if f"{name}_ns" in limits:
            raise ConfigError(f"the SLO limits {name} twice")
        limit_ns = round(float(match[2]) * _UNITS_NS[match[3]])
        if limit_ns < 1:
            raise ConfigError(f"the SLO's limit of {name} is less than a nanosecond")
        limits[f"{name}_ns"] = limit_ns
    return Slo(**limits)


def limits_ms(slo: Slo) -> dict[str, float]:
    """Return the limits that there are by figure, in milliseconds."""
    limits = {field.name.removesuffix("_ns"): getattr(slo, field.name) for field in fields(Slo)}
    return {name: limit_ns / NS_PER_MS for name, limit_ns in limits.items() if limit_ns is not None}


def meets(slo: Slo, exchange: Exchange) -> bool:
    """Whether a request succeeded within every limit; a figure it does not have (the ITL of one token) breaks none."""
    if not exchange.ok:
        return False
    for name, figure in _FIGURES.items():
        limit_ns = getattr(slo, name)
        if limit_ns is not None and (figure(exchange) or 0) > limit_ns:
            return False
    return True
