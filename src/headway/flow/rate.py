"""A token bucket as a value, and the rate that follows a caller's risk. It knows no clock and no caller.

Bucket: what is not used is saved up to `burst`, as in every token bucket (Turner, IEEE Communications 24/10, 1986). Rate:
max(floor, base × (1 − 0.3 × risk)), the project's row S3.
"""

import math

import msgspec

from headway.core.clock import NS_PER_S
from headway.core.quota import Quota

MAX_RISK = 2.0
RISK_FACTOR = 0.3
MIN_BURST = 1.0
"""Below one request nothing could ever be taken."""
MAX_WAIT_NS = 3600 * NS_PER_S
"""The longest wait that is told: nobody plans further ahead."""


class Bucket(msgspec.Struct, frozen=True):
    """`level` units at `at_ns`, `rate` more each second, up to `burst`. A debt is a level below 0."""

    level: float
    at_ns: int
    rate: float
    burst: float

    def at(self, now_ns: int, rate: float, burst: float) -> "Bucket":
        """Return it as it stands at `now_ns` (not before `at_ns`: time that goes back counts as none) at a new rate.

        What was saved beyond the new burst is gone: a lowered rate leaves no credit behind.
        """
        elapsed_s = max(0, now_ns - self.at_ns) / NS_PER_S
        level = min(burst, self.level + elapsed_s * rate)
        return Bucket(level, max(now_ns, self.at_ns), rate, burst)

    def take(self, amount: float = 1.0) -> tuple["Bucket", int]:
        """Return the bucket with `amount` less and 0, or the same bucket and nanoseconds until it could be taken."""
        if self.level >= amount:
            return Bucket(self.level - amount, self.at_ns, self.rate, self.burst), 0
        return self, self.wait_ns(amount)

    def wait_ns(self, amount: float) -> int:
        """Return nanoseconds until the level is `amount`, at most MAX_WAIT_NS, which also stands for never."""
        missing = amount - self.level
        if missing <= 0:
            return 0
        if amount > self.burst or missing >= self.rate * (MAX_WAIT_NS / NS_PER_S):
            return MAX_WAIT_NS
        return math.ceil(missing / self.rate * NS_PER_S)

    def put(self, amount: float) -> "Bucket":
        """Return it with `amount` more, or less where that is negative; never above the burst."""
        return Bucket(min(self.burst, self.level + amount), self.at_ns, self.rate, self.burst)

    def quota(self) -> Quota:
        """Return what a caller is told of it."""
        return Quota(int(self.burst), max(0, math.floor(self.level)), self.wait_ns(self.burst))


def full(now_ns: int, rate: float, burst: float) -> Bucket:
    """Return the bucket of somebody who has taken nothing."""
    return Bucket(burst, now_ns, rate, burst)


def rate_at_risk(base: float, floor: float, risk: float) -> float:
    """Return requests a second: `base` for a risk of 0, less the higher it is, never below `floor` nor above `base`."""
    risk = min(MAX_RISK, max(0.0, risk))
    return min(base, max(floor, base * (1 - RISK_FACTOR * risk)))


def burst_of(rate: float, burst_s: float) -> float:
    """Return how many requests at once a rate allows: what `burst_s` seconds of it give, at least one."""
    return max(MIN_BURST, rate * burst_s)
