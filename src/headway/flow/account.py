"""One user's account in memory: rate, place, budget and standing, and the decisions over them.

It knows no clock and no store. `decide.lua` decides the same for Redis, in the same order.
"""

from headway.core.quota import Quotas
from headway.flow.budget import SECONDS_PER_MIN, Holds, Move, Verdict, reserve, settle
from headway.flow.gate import Gate
from headway.flow.limits import Shown, refuse_concurrent, refuse_for_good, refuse_rate, refuse_tokens
from headway.flow.rate import Bucket, full
from headway.flow.signals import Signal
from headway.flow.standing import Standing, Weights, arrived, at, noted, risk, why
from headway.flow.terms import Terms


class Account:
    """Owns one user's state; it starts as that of somebody who has never been here."""

    __slots__ = ("_budget", "_gate", "_holds", "_requests", "_standing")

    def __init__(self, now_ns: int) -> None:
        self._standing = Standing(now_ns)
        self._requests: Bucket | None = None
        self._budget: Bucket | None = None
        self._gate = Gate()
        self._holds = Holds()

    def admit(self, call_id: str, terms: Terms, weights: Weights, now_ns: int) -> tuple[float, Quotas]:
        """Let a call in and return the caller's risk.

        Raises RateLimited or TooManyConcurrent, and then has taken nothing.
        """
        self._standing = arrived(self._standing, weights, now_ns)
        found = risk(self._standing, weights)
        rate, burst = terms.rate(found)
        requests = self._requests
        requests = requests.at(now_ns, rate, burst) if requests else full(now_ns, rate, burst)
        self._requests = requests
        taken, wait_ns = requests.take()
        if wait_ns:
            refuse_rate(wait_ns, rate, self._quotas(terms, now_ns))
        if terms.max_concurrent is not None and not self._gate.has_room(terms.max_concurrent):
            refuse_concurrent(terms.max_concurrent, self._quotas(terms, now_ns))
        self._requests = taken
        self._gate.enter(call_id)
        return found, self._quotas(terms, now_ns)

    def reserve(self, call_id: str, num_tokens: int, terms: Terms, now_ns: int) -> tuple[int, Quotas]:
        """Return the tokens held for a call: 0 without a budget. Raises TokensExhausted or OverBudget, and ends the call."""
        if terms.tokens_per_min is None:
            return 0, self._quotas(terms, now_ns)
        budget = self._budget_at(terms.tokens_per_min, now_ns)
        whole = terms.whole_tokens_per_min
        self._budget, verdict, wait_ns = reserve(budget, num_tokens, whole)
        if verdict is Verdict.GRANTED:
            self._holds.hold(call_id, num_tokens)
            return num_tokens, self._quotas(terms, now_ns)
        self._gate.leave(call_id)
        if self._requests is not None:
            self._requests = self._requests.put(1.0)
        if verdict is Verdict.NEVER:
            refuse_for_good(num_tokens, whole)
        return refuse_tokens(num_tokens, whole, wait_ns, self._quotas(terms, now_ns))

    def settle(self, call_id: str, num_used: int, terms: Terms, now_ns: int) -> None:
        """A call ended; the second time nothing happens."""
        self._gate.leave(call_id)
        held = self._holds.move(call_id, Move.SETTLE)
        if held is not None and terms.tokens_per_min is not None:
            self._budget = settle(self._budget_at(terms.tokens_per_min, now_ns), held, num_used)

    def note(self, signal: Signal, weights: Weights, now_ns: int) -> None:
        """Something was observed."""
        self._standing = noted(self._standing, signal, weights, now_ns)

    def show(self, terms: Terms, weights: Weights, now_ns: int) -> Shown:
        """Return how the user stands."""
        standing = at(self._standing, now_ns)
        found = risk(standing, weights)
        rate, burst = terms.rate(found)
        requests = self._requests
        requests = requests.at(now_ns, rate, burst) if requests else full(now_ns, rate, burst)
        return Shown(
            risk=found,
            requests_per_s=rate,
            base_per_s=terms.base,
            why=tuple(why(standing, weights)),
            num_calls=len(self._gate),
            quotas=Quotas(requests.quota(), self._quotas(terms, now_ns).tokens),
        )

    @property
    def is_idle(self) -> bool:
        """Whether no call of the user runs."""
        return not len(self._gate) and not len(self._holds)

    def is_fresh(self, now_ns: int) -> bool:
        """Whether forgetting the user would change no decision, but for clients and regions known of him."""
        if not self.is_idle:
            return False
        buckets = (self._requests, self._budget)
        levels = (bucket.at(now_ns, bucket.rate, bucket.burst) for bucket in buckets if bucket)
        return all(bucket.level >= bucket.burst for bucket in levels) and at(self._standing, now_ns).is_fresh

    def _budget_at(self, tokens_per_min: int, now_ns: int) -> Bucket:
        rate = tokens_per_min / SECONDS_PER_MIN
        if self._budget is None:
            return full(now_ns, rate, float(tokens_per_min))
        return self._budget.at(now_ns, rate, float(tokens_per_min))

    def _quotas(self, terms: Terms, now_ns: int) -> Quotas:
        requests = (self._requests or full(now_ns, *terms.rate(0.0))).quota()
        if terms.tokens_per_min is None:
            return Quotas(requests)
        return Quotas(requests, self._budget_at(terms.tokens_per_min, now_ns).quota())
