"""What to do when a stream's log takes no more: pause the generation, then fail the stream, never lose an event. Pure."""

from dataclasses import dataclass
from typing import Literal

from headway.core.clock import NS_PER_S

Answer = Literal["go_on", "pause", "fail"]

PATIENCE_NS = 30 * NS_PER_S
"""As long as the gateway waits for a client that is gone to come back, and for a slow reader."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """`full_since_ns`: since when the log has been full without a break; None = it is not."""

    full_since_ns: int | None = None


def after_attempt(
    pressure: Pressure, *, accepted: bool, now_ns: int, patience_ns: int = PATIENCE_NS
) -> tuple[Pressure, Answer]:
    """Return what an attempt to append makes of the pressure, and what to do: go on, wait for room, or give up."""
    if accepted:
        return Pressure(), "go_on"
    since = now_ns if pressure.full_since_ns is None else pressure.full_since_ns
    return Pressure(since), "fail" if now_ns - since >= patience_ns else "pause"


def patience_left_ns(pressure: Pressure, now_ns: int, patience_ns: int = PATIENCE_NS) -> int:
    """Return how long a pause may still last."""
    since = now_ns if pressure.full_since_ns is None else pressure.full_since_ns
    return max(0, since + patience_ns - now_ns)
