"""What became of the requests that were offered, by who decided it: refused by the server, taken, answered. Pure functions.

A refusal is an answer that a server gives on purpose; a connection that fails is not, and neither counts as the other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.lab.exchange import Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """offered ≥ admitted + refused; the rest had another status, or no connection."""

    num_offered: int
    num_admitted: int
    """The server took them: neither refused nor turned away with another status, and not without a connection."""
    num_answered: int
    """Of those, the ones that succeeded."""
    refusals: Mapping[tuple[int, str | None], int]
    """By status, 429 or 503, and code, None where the server gave none; most frequent first."""

    @property
    def num_refused(self) -> int:
        """How many were told not now."""
        return sum(self.refusals.values())

    @property
    def admitted_share(self) -> float | None:
        """Admitted ÷ offered; None = nothing was offered."""
        return self.num_admitted / self.num_offered if self.num_offered else None


def admission(exchanges: Sequence[Exchange]) -> Admission:
    """Count what became of `exchanges`."""
    failures = [exchange.answer.failure for exchange in exchanges if exchange.answer.failure is not None]
    refusals = Counter(
        (failure.status or 0, failure.code) for failure in failures if failure.kind == "refused"
    )
    return Admission(
        num_offered=len(exchanges),
        num_admitted=len(exchanges)
        - sum(failure.kind in ("refused", "status", "connection") for failure in failures),
        num_answered=len(exchanges) - len(failures),
        refusals=dict(sorted(refusals.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))),
    )


def admission_json(found: Admission) -> dict[str, object]:
    """Return the counts as JSON's types."""
    return {
        "admitted": found.num_admitted,
        "refused": found.num_refused,
        "refusals": [
            {"status": status, "code": code, "n": count} for (status, code), count in found.refusals.items()
        ],
    }
