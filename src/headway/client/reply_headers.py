"""What a response's headers say about asking again: RFC 9110's `Retry-After`, and the two that OpenAI's clients heed."""

import math
import time
from collections.abc import Mapping
from typing import Final

from headway.core.clock import NS_PER_MS, NS_PER_S

_LONGEST_S: Final = 86_400.0
"""Whoever says more has closed; and a number without bound must not become a time."""


def retry_after_ns(headers: Mapping[str, str]) -> int | None:
    """Return how long the server asks to wait; None = it does not say, or nothing that can be read."""
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return round(min(ms, _LONGEST_S * 1000) * NS_PER_MS)
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is None and said is not None:
        seconds = _until(said)
    return None if seconds is None else round(min(seconds, _LONGEST_S) * NS_PER_S)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Return what `x-should-retry` says; None = nothing."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _until(date: str) -> float | None:
    """Return the seconds from now to an HTTP date, of the wall clock as RFC 9110 (10.2.3) has it."""
    from email.utils import parsedate_to_datetime  # slow to import, and hardly any server sends dates

    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
