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
    """A figure of many requests. `successes`: of those that succeeded; `all_requests`: with +infinity for each failure.

    Beside each, in its order, the conversation it is of: turns of one resemble each other.
    """

    successes: tuple[float, ...]
    all_requests: tuple[float, ...]
    success_conversations: tuple[int, ...]
    all_conversations: tuple[int, ...]


def goodput(slo: Slo, exchanges: Sequence[Exchange]) -> Goodput:
    """Count the requests that met `slo`; a failure, a refusal too, never does."""
    met = sum(meets(slo, exchange) for exchange in exchanges)
    return Goodput(num_met=met, num_offered=len(exchanges))


def values(figure: Callable[[Exchange], float | None], exchanges: Iterable[Exchange]) -> Values:
    """Take a figure per request, twice. A success that lacks it (the TPOT of one token) is left out of both."""
    found: list[tuple[float, int]] = []
    for exchange in exchanges:
        value = figure(exchange) if exchange.ok else math.inf
        if value is not None:
            found.append((value, exchange.conversation))
    succeeded = [(value, conversation) for value, conversation in found if value != math.inf]
    return Values(
        successes=tuple(value for value, _ in succeeded),
        all_requests=tuple(value for value, _ in found),
        success_conversations=tuple(conversation for _, conversation in succeeded),
        all_conversations=tuple(conversation for _, conversation in found),
    )


def failures(exchanges: Iterable[Exchange]) -> dict[str, int]:
    """Count failures by label, most frequent first."""
    labels = Counter(
        exchange.answer.failure.label for exchange in exchanges if exchange.answer.failure is not None
    )
    return dict(sorted(labels.items(), key=lambda item: (-item[1], item[0])))
