"""Who was served how much: what shares between classes and fairness between tenants rest on.

Classes. Tokens computed for each class in the last `WINDOW_NS`, against its share of them all. `high` comes in bursts, so
what it leaves of its share is saved for it, as much as it may have in `SAVED_NS`, and what it has beyond is owed likewise (a
token bucket that fills by its share of what the engine computes). Else a burst that had used up the window would be followed
by seconds with nothing.

Tenants. A counter of service each, input tokens counting 1 and output tokens 2; the tenant served least goes first, and one
that comes back is lifted to the least of those that are active, so that it cannot save up (virtual token counter, Sheng and
others, arXiv 2401.00588).

It knows no queue and no policy: the engine tells it who comes, who is served and who goes.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.clock import NS_PER_S
from headway.core.request import ServiceClass

RANKS: dict[ServiceClass, int] = {"high": 0, "normal": 1, "low": 2}
"""Classes by urgency."""
HIGH, LOW = RANKS["high"], RANKS["low"]

WINDOW_NS = 5 * NS_PER_S
SAVED_NS = WINDOW_NS // 2
"""Savings are the share of so long at most: with them `high` has twice its share for as long, as it has with a window."""
_SLICE_NS = WINDOW_NS // 20
"""How finely the window slides."""
INPUT_WEIGHT, OUTPUT_WEIGHT = 1, 2
LEAD_S = 1.0
"""Of what the engine computes, between equals. Leads do not add up: over ten seconds nobody gets a tenth more for it."""


@dataclass(slots=True)
class _Slice:
    """A part of the window: tokens by rank, those of each tenant by (rank, tenant), and how long the engine computed."""

    end_ns: int
    tokens: list[int] = field(default_factory=lambda: [0, 0, 0])
    by_tenant: dict[tuple[int, str], int] = field(default_factory=dict)
    busy_ns: int = 0


class Accounts:
    """Owns one engine's accounts. `shares`: percent for each class, by rank, over 0."""

    __slots__ = (
        "_busy_ns",
        "_by_tenant",
        "_floor",
        "_last_busy_ns",
        "_num_active",
        "_saved",
        "_shares",
        "_slices",
        "_totals",
        "served",
    )

    def __init__(self, shares: tuple[int, int, int]) -> None:
        self._shares = tuple(share / sum(shares) for share in shares)
        self._slices: deque[_Slice] = deque()
        self._totals = [0, 0, 0]
        self._by_tenant: dict[tuple[int, str], int] = {}
        self._busy_ns = 0
        self._last_busy_ns: int | None = None
        self._saved = 0.0  # tokens that `high` has had less than its share, below 0 more
        self._num_active: dict[str, int] = {}
        self.served: dict[str, int] = {}
        """Counters of the tenants that are active or ahead of those that are."""
        self._floor = 0

    # Classes

    def window(self, now_ns: int) -> tuple[list[int], tuple[float, ...]]:
        """Return the tokens of each class in the window, by rank, and their shares, which add up to 1."""
        self._slide(now_ns)
        return list(self._totals), self._shares

    def spare_tokens(self, now_ns: int) -> float:
        """Return how many more tokens the window would have had, had the engine been busy all the time.

        So an engine that is mostly idle sees nobody exceed a share.
        """
        self._slide(now_ns)
        if not self._busy_ns:
            return 0.0
        return sum(self._totals) * max(0, WINDOW_NS - self._busy_ns) / self._busy_ns

    def use(self, now_ns: int, planned: Sequence[int] = (0, 0, 0)) -> list[float]:
        """Return what each class has had, by rank, over its share of what the engine could do: 1 = just that.

        planned   tokens of each class that are to be counted besides
        """
        self._slide(now_ns)
        had = [before + now for before, now in zip(self._totals, planned, strict=True)]
        total = sum(had) + self.spare_tokens(now_ns)
        use = [
            tokens / total / share if total else 0.0 for tokens, share in zip(had, self._shares, strict=True)
        ]
        if self._saved + self._shares[HIGH] * sum(planned) > planned[HIGH]:
            use[HIGH] = 0.0
        return use

    def note_busy(self, duration_ns: int, now_ns: int) -> None:
        """A step took `duration_ns`, up to now."""
        self._slice(now_ns).busy_ns += duration_ns
        self._busy_ns += duration_ns
        per_ns = sum(self._totals) / self._busy_ns if self._busy_ns else 0.0
        if self._last_busy_ns is not None:  # what it could have computed while it was idle
            self._saved += self._shares[HIGH] * per_ns * max(0, now_ns - duration_ns - self._last_busy_ns)
        self._last_busy_ns = now_ns
        most = self._shares[HIGH] * per_ns * SAVED_NS
        self._saved = max(-most, min(most, self._saved))

    def _slice(self, now_ns: int) -> "_Slice":
        if not self._slices or now_ns >= self._slices[-1].end_ns:
            self._slices.append(_Slice(now_ns - now_ns % _SLICE_NS + _SLICE_NS))
        return self._slices[-1]

    def _slide(self, now_ns: int) -> None:
        while self._slices and self._slices[0].end_ns <= now_ns - WINDOW_NS:
            gone = self._slices.popleft()
            self._busy_ns -= gone.busy_ns
            for rank, tokens in enumerate(gone.tokens):
                self._totals[rank] -= tokens
            for key, tokens in gone.by_tenant.items():
                self._by_tenant[key] -= tokens
                if not self._by_tenant[key]:
                    del self._by_tenant[key]

    # Tenants

    def enter(self, tenant: str) -> None:
        """A sequence of `tenant` came."""
        count = self._num_active.get(tenant, 0)
        self._num_active[tenant] = count + 1
        if not count:
            self._raise_floor()
            self.served[tenant] = max(self._floor, self.served.get(tenant, 0))

    def leave(self, tenant: str) -> None:
        """A sequence of `tenant` ended."""
        count = self._num_active[tenant] - 1
        if count:
            self._num_active[tenant] = count
            return
        self._raise_floor()
        del self._num_active[tenant]
        # Who is not ahead of the others will be lifted anyway: nothing to remember.
        self.served = {
            name: served
            for name, served in self.served.items()
            if name in self._num_active or served > self._floor
        }

    def _raise_floor(self) -> None:
        active = [self.served[name] for name in self._num_active if name in self.served]
        if active:
            self._floor = max(self._floor, min(active))

    def overtaking(self, rank: int, tenant: str, now_ns: int) -> tuple[int, float]:
        """Return how many tenants of a class were served less than `tenant`, and their tokens in the window.

        They may go before it when they come again: surely those that are behind by more than `lead`, whose tokens count in
        full, others' in proportion.
        """
        self._slide(now_ns)
        own, lead = max(self._floor, self.served.get(tenant, 0)), max(1.0, self.lead(now_ns))
        count, num_tokens = 0, 0.0
        for (other_rank, name), tokens in self._by_tenant.items():
            behind = own - max(self._floor, self.served.get(name, 0))
            if other_rank == rank and name != tenant and behind > 0:
                count += 1
                num_tokens += tokens * min(1.0, behind / lead)
        return count, num_tokens

    def lead(self, now_ns: int) -> float:
        """Return how much more service than others a tenant may have had and still count as their equal."""
        self._slide(now_ns)
        return LEAD_S * sum(self._totals) * NS_PER_S / self._busy_ns if self._busy_ns else 0.0

    # Both

    def charge(self, rank: int, tenant: str, num_input: int, num_output: int, now_ns: int) -> None:
        """A step computed `num_input` prompt tokens and drew `num_output` for a sequence of class `rank` and `tenant`."""
        num_tokens = num_input + num_output
        if not num_tokens:
            return
        current, key = self._slice(now_ns), (rank, tenant)
        current.tokens[rank] += num_tokens
        current.by_tenant[key] = current.by_tenant.get(key, 0) + num_tokens
        self._totals[rank] += num_tokens
        self._saved += self._shares[HIGH] * num_tokens - (num_tokens if rank == HIGH else 0)
        self._by_tenant[key] = self._by_tenant.get(key, 0) + num_tokens
        if tenant in self.served:
            self.served[tenant] += INPUT_WEIGHT * num_input + OUTPUT_WEIGHT * num_output
