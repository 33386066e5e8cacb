"""What failures do to a run's figures: they never make it look faster."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headway.lab.exchange import Exchange
from headway.lab.slo import Slo, meets


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Requests that met their SLO, of all that were offered: sent or due, whatever became of them."""

    num_met: int
    num_offered: int

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None = nothing was offered."""
        return self.num_met / self.num_offered if self.num_offered else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A figure of many requests. `successes`: of those that succeeded; `all_requests`: with +infinity for each failure."""

    successes: tuple[float, ...]
    all_requests: tuple[float, ...]


def goodput(slo: Slo, exchanges: Sequence[Exchange]) -> Goodput:
    """Count the requests that met `slo`; a failure, a refusal too, never does."""
    met = sum(meets(slo, exchange) for exchange in exchanges)
    return Goodput(num_met=met, num_offered=len(exchanges))


def values(figure: Callable[[Exchange], float | None], exchanges: Iterable[Exchange]) -> Values:
    """Take a figure per request, twice. A success that lacks it (the TPOT of one token) is left out of both."""
    successes: list[float] = []
    all_requests: list[float] = []
    for exchange in exchanges:
        if not exchange.ok:
            all_requests.append(math.inf)
        elif (value := figure(exchange)) is not None:
            successes.append(value)
            all_requests.append(value)
    return Values(successes=tuple(successes), all_requests=tuple(all_requests))


def failures(exchanges: Iterable[Exchange]) -> dict[str, int]:
    """Count failures by label, most frequent first."""
    labels = Counter(
        exchange.answer.failure.label for exchange in exchanges if exchange.answer.failure is not None
    )
    return dict(sorted(labels.items(), key=lambda item: (-item[1], item[0])))
