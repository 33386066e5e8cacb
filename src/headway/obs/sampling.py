"""Which calls have a span: all that are critical, all that failed, and a share of the others.

A call's only span is made when the call is over, so whether it failed is known, as it would not be if its caller's headers
decided. It is unknown to everybody who must decide at the head: whoever calls us, and what we call. Their spans of a failed
call may be missing; a collector that samples by the tail keeps them.

The share of the others follows errors and load: while many calls fail, more of those that did not are worth comparing with;
while many come, fewer do as well, and spans take their time from the loop that serves.
"""

from dataclasses import dataclass
from math import log
from typing import Final, Literal

from headway.core.clock import NS_PER_S
from headway.core.events import CallEnded

Reason = Literal["class", "kind", "error", "parent", "ratio"]
"""Why a call has a span. Counts of all calls are those of metrics; of "ratio", each stands for 1 / ratio of them."""

HALF_LIFE_S: Final = 10.0
"""Of what is remembered of calls."""
MAX_SPANS_PER_S: Final = 20
"""Of those that only the ratio has recorded: 60 µs each on the loop that serves, so a thousandth of it."""
ALARMING_SHARE: Final = 0.1
"""Of calls that failed, from which on all are recorded, up to `MAX_SPANS_PER_S`."""
_LEAST_CALLS: Final = 100
"""One failure among ten calls is no tenth of what may come."""

_LOW_BITS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Traffic:
    """Calls of late and those in which the server failed, fading away."""

    num_calls: float = 0.0
    num_failed: float = 0.0
    at_ns: int = 0

    def after(self, call: CallEnded, now_ns: int) -> "Traffic":
        """Return it with one more call."""
        kept = 0.5 ** (max(0, now_ns - self.at_ns) / NS_PER_S / HALF_LIFE_S)
        return Traffic(self.num_calls * kept + 1, self.num_failed * kept + failed(call), now_ns)

    @property
    def calls_per_s(self) -> float:
        """How many come; too few at first, until some half-lives are over."""
        return self.num_calls * log(2) / HALF_LIFE_S


def ratio_in(traffic: Traffic, base: float) -> float:
    """Return the share of calls that have a span: `base`, more while calls fail, less where that is too much.

    0 and 1 are none and all, whatever happens: whoever says so means it.
    """
    if not 0 < base < 1:
        return base
    alarm = min(1.0, traffic.num_failed / max(traffic.num_calls, _LEAST_CALLS) / ALARMING_SHARE)
    wanted = base + (1 - base) * alarm
    return min(wanted, MAX_SPANS_PER_S / max(traffic.calls_per_s, MAX_SPANS_PER_S))


def sampled_by(call: CallEnded, sample_ratio: float) -> Reason | None:
    """Return why `call` has a span, None if it has none.

    Neither the ratio nor a parent that is not recorded keeps out what is critical. Where a parent says nothing, the
    trace id's low 64 bits decide, as in OpenTelemetry's TraceIdRatioBased: everybody with that ratio decides alike.
    """
    if call.service_class == "high":
        return "class"
    if call.kind == "admin" and call.token_id:
        return "kind"
    if failed(call):
        return "error"
    if call.trace_parent is not None:
        return "parent" if call.trace_parent.sampled else None
    return "ratio" if trace_id(call) % _LOW_BITS < round(sample_ratio * _LOW_BITS) else None


def failed(call: CallEnded) -> bool:
    """Whether the server failed, also within a stream that began with 200; refusals and mistakes of callers are none."""
    if call.request is not None and call.request.outcome == "error":
        return True
    return call.status >= 500 and call.status != 503


def trace_id(call: CallEnded) -> int:
    """Return the trace that the call belongs to: its caller's, or one that is called like the request, as logs do."""
    return int(call.request_id, 16) if call.trace_parent is None else call.trace_parent.trace_id
