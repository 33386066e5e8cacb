"""States of an engine client, and how long it waits before it restarts an engine that died. Pure.

`starting` covers the first load of the model, `restarting` the back-off and every later load; `closed` is the end.
"""

from dataclasses import dataclass, replace
from typing import Self

from headway.core.events import EngineState

TRANSITIONS: dict[EngineState, frozenset[EngineState]] = {
    "starting": frozenset({"ready", "draining", "closed"}),
    "ready": frozenset({"draining", "restarting", "closed"}),
    "restarting": frozenset({"restarting", "ready", "draining", "closed"}),
    "draining": frozenset({"closed"}),
    "closed": frozenset(),
}


class IllegalTransition(RuntimeError):
    """A bug: the client moved between states that do not follow each other."""


def move(current: EngineState, target: EngineState) -> EngineState:
    """Return `target`; raises IllegalTransition when it cannot follow `current`."""
    if target not in TRANSITIONS[current]:
        raise IllegalTransition(f"an engine that is {current} cannot become {target}")
    return target


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after `num_failures` ends in a row: none, then 1 s, doubling to 30 s; a minute of health starts it afresh.

    A crash loop then costs one model load per half minute at most, and after a single crash, for whose end running answers
    wait, the engine is started again at once.
    """

    num_failures: int = 0

    FIRST_S = 1.0
    MAX_S = 30.0
    HEALTHY_S = 60.0

    @property
    def delay_s(self) -> float:
        """Seconds to wait before the next start."""
        if self.num_failures <= 1:
            return 0.0
        doublings = min(self.num_failures - 2, 16)  # 2**16 s is past the limit: no huge powers
        return min(self.FIRST_S * 2.0**doublings, self.MAX_S)

    def after_end(self, uptime_s: float) -> Self:
        """Return the back-off after an engine ended that had been ready for `uptime_s` (0 = it never was)."""
        return replace(self, num_failures=1 if uptime_s >= self.HEALTHY_S else self.num_failures + 1)
