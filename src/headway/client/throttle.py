"""Holding back from an endpoint that only refuses: client-side throttling of "Site Reliability Engineering" (2016), ch. 21.

A call is held back with probability max(0, (requests - k · accepts) / (requests + 1)) over the last two minutes, where calls
held back count as requests. So an endpoint that refuses everything still sees a few calls, and when it takes them again,
the others follow within the window. One a second is always sent, so that who asks seldom finds out at once.
"""

from collections import deque

from headway.client.policy import Throttling, to_ns

_NUM_SLICES = 60
"""Of the window, forgotten one by one: what counts is exact to two seconds of two minutes."""


def reject_probability(num_requests: int, num_accepts: int, k: float) -> float:
    """Return the probability that a call is held back."""
    return max(0.0, (num_requests - k * num_accepts) / (num_requests + 1))


class Throttle:
    """Counts of one endpoint. Times never go back."""

    def __init__(self, rules: Throttling) -> None:
        self._rules = rules
        self._slice_ns = max(1, to_ns(rules.window_s) // _NUM_SLICES)
        self._slices: deque[list[int]] = deque()  # [number of the slice, requests, accepts]
        self._requests = 0
        self._accepts = 0
        self._sent_ns: int | None = None

    def admits(self, now_ns: int, draw: float) -> bool:
        """Count a request and return whether it may be sent. `draw`: within [0, 1)."""
        self._forget(now_ns)
        probes = self._sent_ns is None or now_ns - self._sent_ns >= to_ns(self._rules.probe_s)
        few = self._requests < self._rules.min_requests
        sent = few or probes or draw >= reject_probability(self._requests, self._accepts, self._rules.k)
        self._slice(now_ns)[1] += 1
        self._requests += 1
        if sent:
            self._sent_ns = now_ns
        return sent

    def accepted(self, now_ns: int) -> None:
        """Count a request that the endpoint took: it answered, or said that the request is wrong."""
        self._forget(now_ns)
        self._slice(now_ns)[2] += 1
        self._accepts += 1

    def _slice(self, now_ns: int) -> list[int]:
        number = now_ns // self._slice_ns
        if not self._slices or self._slices[-1][0] != number:
            self._slices.append([number, 0, 0])
        return self._slices[-1]

    def _forget(self, now_ns: int) -> None:
        oldest = now_ns // self._slice_ns - _NUM_SLICES
        while self._slices and self._slices[0][0] <= oldest:
            _, requests, accepts = self._slices.popleft()
            self._requests -= requests
            self._accepts -= accepts
