"""When it is worth asking a second time: after the usual time to the first token, and for a bounded share of calls.

"The Tail at Scale" (Dean and Barroso, 2013): a second request after the 95th percentile costs about 5 % more load and
cuts the tail. What is usual is what this client saw, for each endpoint; the share is a bucket that every call fills a bit.
"""

import math
from collections import deque

from headway.client.policy import Hedging

_NUM_SAMPLES = 200
"""The 95th percentile then stands on ten samples above it, and follows the endpoint within minutes of use."""
_MAX_SAVED = 10.0
"""Hedges that a quiet time can save up for a bad one."""


class Hedges:
    """What was seen of each endpoint, and how many hedges are left."""

    def __init__(self, rules: Hedging, num_endpoints: int) -> None:
        self._rules = rules
        self._seen_ns: list[deque[int]] = [deque(maxlen=_NUM_SAMPLES) for _ in range(num_endpoints)]
        self._saved = 0.0

    def called(self) -> None:
        """Count a call."""
        self._saved = min(_MAX_SAVED, self._saved + self._rules.share)

    def hedged(self) -> None:
        """Count a hedge."""
        self._saved -= 1

    def answered(self, endpoint: int, ttft_ns: int) -> None:
        """Take the time from asking an endpoint to its first token."""
        self._seen_ns[endpoint].append(ttft_ns)

    def after_ns(self) -> tuple[int | None, ...]:
        """Return for each endpoint after how long it may be hedged; None = it may not."""
        if self._saved < 1:
            return (None,) * len(self._seen_ns)
        return tuple(self._usual_ns(seen) for seen in self._seen_ns)

    def _usual_ns(self, seen: deque[int]) -> int | None:
        if len(seen) < self._rules.min_samples:
            return None
        return sorted(seen)[math.ceil(self._rules.percentile * len(seen)) - 1]
