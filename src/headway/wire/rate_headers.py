"""The headers that tell a caller how much of his limits is left, in OpenAI's names and format.

Durations are written as Go writes them, which is what OpenAI sends and what its users parse: `6m0s`, `1s`, `8.64s`, `12ms`
(https://pkg.go.dev/time#Duration.String).
"""

from typing import Final

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.quota import Quota, Quotas

RATE_HEADERS: Final = tuple(
    f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)
"""All that there may be."""


def rate_headers(quotas: Quotas) -> list[tuple[str, str]]:
    """Return `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, of those limits that there are."""
    return [*_headers("requests", quotas.requests), *_headers("tokens", quotas.tokens)]


def _headers(of: str, quota: Quota | None) -> list[tuple[str, str]]:
    if quota is None:
        return []
    return [
        (f"x-ratelimit-limit-{of}", str(quota.limit)),
        (f"x-ratelimit-remaining-{of}", str(quota.remaining)),
        (f"x-ratelimit-reset-{of}", duration_text(quota.reset_ns)),
    ]


def duration_text(duration_ns: int) -> str:
    """Return a duration rounded up to whole milliseconds: who waits so long must not come too early."""
    num_ms = -(-max(0, duration_ns) // NS_PER_MS)
    if num_ms == 0:
        return "0s"
    if num_ms < 1000:
        return f"{num_ms}ms"
    minutes, ms = divmod(num_ms, 60 * NS_PER_S // NS_PER_MS)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}" if minutes else seconds
