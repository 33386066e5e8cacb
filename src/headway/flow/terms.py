"""A caller's limits as they count: his own, else the server's. It knows no store."""

import msgspec

from headway.core.caller import Caller
from headway.flow.config import LimitsConfig
from headway.flow.rate import burst_of, rate_at_risk


class Terms(msgspec.Struct, frozen=True):
    """One caller's limits.

    base, floor           requests a second
    burst_s               so many seconds' requests at once
    tokens_per_min        None = no limit
    whole_tokens_per_min  of which that is a gateway's part; the same where one gateway has it all, 0 without a limit
    max_concurrent        None = no limit
    """

    base: float
    floor: float
    burst_s: float
    tokens_per_min: int | None
    whole_tokens_per_min: int
    max_concurrent: int | None

    def rate(self, risk: float) -> tuple[float, float]:
        """Return requests a second at a risk, and how many of them at once."""
        rate = rate_at_risk(self.base, self.floor, risk)
        return rate, burst_of(rate, self.burst_s)


def terms_of(caller: Caller, config: LimitsConfig, num_gateways: int = 1) -> Terms:
    """Return what a caller may here; with several gateways that do not hear of each other, his part of it.

    No part is below one call at once, nor one token a minute: who divides by too many still serves.
    """
    own = caller.limits
    base = config.requests_per_s if own.requests_per_s is None else own.requests_per_s
    tokens = config.tokens_per_min if own.tokens_per_min is None else own.tokens_per_min
    concurrent = config.max_concurrent if own.max_concurrent is None else own.max_concurrent
    return Terms(
        base=base / num_gateways,
        floor=min(base, config.floor_per_s) / num_gateways,
        burst_s=config.burst_s,
        tokens_per_min=None if tokens is None else max(1, tokens // num_gateways),
        whole_tokens_per_min=tokens or 0,
        max_concurrent=None if concurrent is None else min(concurrent, max(1, concurrent // num_gateways)),
    )
