"""Which calls have a span: all that are critical, all that failed, and a share of the others.

A call's only span is made when the call is over, so whether it failed is known, as it would not be if its caller's headers
decided. It is unknown to everybody who must decide at the head: whoever calls us, and what we call. Their spans of a failed
call may be missing; a collector that samples by the tail keeps them.
"""

from typing import Literal

from headway.core.events import CallEnded

Reason = Literal["class", "kind", "error", "parent", "ratio"]
"""Why a call has a span. Counts of all calls are those of metrics; of "ratio", each stands for 1 / ratio of them."""

_LOW_BITS = 1 << 64


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
