"""When to ask a store that may be slow or gone, and when to do without it. It knows no store and no clock.

A circuit breaker (Nygard, Release It!, 2007): some failures in a row open it, and nobody waits for the store any
more; after a while one call may try, and its outcome closes it or opens it for twice as long.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from headway.core.clock import NS_PER_S

MAX_FAILURES: Final = 3
"""In a row. Each costs somebody the deadline of a call, so few; one alone may be a connection that idled for too long."""
FIRST_PAUSE_NS: Final = NS_PER_S
LAST_PAUSE_NS: Final = 16 * NS_PER_S


class Phase(Enum):
    """CLOSED: everybody asks. OPEN: nobody does. HALF_OPEN: one call has gone to try."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Event(Enum):
    """What happens to a breaker. WORN: too many failures in a row; TRY: a pause is over and a call goes to try."""

    SUCCESS = "success"
    FAILURE = "failure"
    WORN = "worn"
    TRY = "try"


TRANSITIONS: Final[dict[tuple[Phase, Event], Phase]] = {
    (Phase.CLOSED, Event.SUCCESS): Phase.CLOSED,
    (Phase.CLOSED, Event.FAILURE): Phase.CLOSED,
    (Phase.CLOSED, Event.WORN): Phase.OPEN,
    # Calls that were on their way when it opened: their outcome is no news.
    (Phase.OPEN, Event.SUCCESS): Phase.OPEN,
    (Phase.OPEN, Event.FAILURE): Phase.OPEN,
    (Phase.OPEN, Event.TRY): Phase.HALF_OPEN,
    (Phase.HALF_OPEN, Event.SUCCESS): Phase.CLOSED,
    (Phase.HALF_OPEN, Event.FAILURE): Phase.OPEN,
    # The call that tried was never heard of again.
    (Phase.HALF_OPEN, Event.TRY): Phase.HALF_OPEN,
}


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker as a value. `num_failures` in a row; `pause_ns` is that of the next opening, `retry_at_ns` ends this one."""

    phase: Phase = Phase.CLOSED
    num_failures: int = 0
    pause_ns: int = FIRST_PAUSE_NS
    retry_at_ns: int = 0

    def ask(self, now_ns: int) -> tuple["Breaker", bool]:
        """Return the breaker and whether a call may go to the store."""
        if self.phase is Phase.CLOSED:
            return self, True
        if now_ns < self.retry_at_ns:
            return self, False
        phase = TRANSITIONS[self.phase, Event.TRY]
        return Breaker(phase, self.num_failures, self.pause_ns, now_ns + self.pause_ns), True

    def succeeded(self) -> "Breaker":
        """A call was answered in time."""
        phase = TRANSITIONS[self.phase, Event.SUCCESS]
        return Breaker() if phase is Phase.CLOSED else self

    def failed(self, now_ns: int) -> "Breaker":
        """A call was not."""
        num_failures = self.num_failures + 1
        is_worn = self.phase is Phase.CLOSED and num_failures >= MAX_FAILURES
        phase = TRANSITIONS[self.phase, Event.WORN if is_worn else Event.FAILURE]
        if phase is Phase.OPEN and self.phase is not Phase.OPEN:
            next_pause_ns = min(LAST_PAUSE_NS, 2 * self.pause_ns)
            return Breaker(phase, num_failures, next_pause_ns, now_ns + self.pause_ns)
        return Breaker(phase, num_failures, self.pause_ns, self.retry_at_ns)
