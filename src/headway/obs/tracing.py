"""Makes spans with OpenTelemetry's SDK and has them exported on a thread of its own. Imported only when it is configured.

What a span says and whether a call has one is decided by `spans` and `sampling`; a call without one costs no more than the
decision. The event loop only puts ended spans into a bounded queue: a collector that is slow, hangs or is gone makes spans
be lost, and nothing wait.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from headway.core.clock import NS_PER_S, Clock, MonotonicClock
from headway.core.events import CallEnded
from headway.core.version import __version__
from headway.obs import spans
from headway.obs.sampling import Traffic, failed, ratio_in, sampled_by, trace_id

MAX_QUEUED: Final = 2048
"""Spans that wait for a collector, about 6 MB; the SDK's default."""
_BATCH: Final = 32
"""Spans encoded at once, in 2 ms within which the event loop lacks the interpreter's lock; 512, the default, take 34 ms."""
_DELAY_MS: Final = 1000
_EXPORT_TIMEOUT_S: Final = 5
CLOSE_TIMEOUT_S: Final = 2
"""What is not exported by then is lost: a server stops whether its collector lives or not."""


_COMPLAINTS: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)
"""Loggers of the exporter, which tells of every try that failed, and of the queue, which tells of every span it lost."""
_SILENCE_NS: Final = 60 * NS_PER_S


class Seldom(logging.Filter):
    """Lets a line pass, then none for a minute: a collector that is gone for a night should not fill the log."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._next_ns = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether `record` passes."""
        del record
        now_ns = self._clock.now_ns()
        passes = now_ns >= self._next_ns
        if passes:
            self._next_ns = now_ns + _SILENCE_NS
        return passes


def otlp_exporter(endpoint: str | None) -> SpanExporter:
    """Return an exporter over OTLP/HTTP to the collector at the base URL `endpoint`; None = as the environment says.

    Everything else (headers, certificates, compression) is as OpenTelemetry's environment variables say.
    """
    for name in _COMPLAINTS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, Seldom) for each in logger.filters):
            logger.addFilter(Seldom(MonotonicClock()))
    url = None if endpoint is None else endpoint.rstrip("/") + "/v1/traces"
    return OTLPSpanExporter(endpoint=url, timeout=_EXPORT_TIMEOUT_S)


class Tracing:
    """Give it every `CallEnded`; `close` it at the end. `sample_ratio`: in ordinary traffic, by which the ratio goes."""

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        sample_ratio: float,
        wall_time_ns: Callable[[], int],
        clock: Clock | None = None,
    ) -> None:
        self._sample_ratio = sample_ratio
        self._traffic = Traffic()
        self._clock = clock or MonotonicClock()
        self._wall_time_ns = wall_time_ns
        self._ids = _Ids()
        self._processor = BatchSpanProcessor(
            exporter, max_queue_size=MAX_QUEUED, schedule_delay_millis=_DELAY_MS, max_export_batch_size=_BATCH
        )
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # what is not sampled does not come so far
            resource=_resource(),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("headway", __version__)

    def on_call(self, call: CallEnded) -> None:
        """Make the call's span, if it has one; it ends now."""
        self._traffic = self._traffic.after(call, self._clock.now_ns())
        ratio = ratio_in(self._traffic, self._sample_ratio)
        reason = sampled_by(call, ratio)
        if reason is None:
            return
        end_ns = self._wall_time_ns()
        self._ids.trace_id = trace_id(call)
        span = self._tracer.start_span(
            spans.name(call),
            context=_context(call),
            kind=SpanKind.SERVER,
            attributes=spans.attributes(call, reason, ratio),
            start_time=end_ns - call.duration_ns,
        )
        if failed(call):
            span.set_status(Status(StatusCode.ERROR, call.error_code))
        span.end(end_ns)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Export what waits, for `timeout_s` at most; blocks meanwhile. The thread does not keep the process alive."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(timeout_s)


def _resource() -> Resource:
    """Who we are, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say otherwise."""
    own: dict[str, AttributeValue] = {SERVICE_NAME: "headway", SERVICE_VERSION: __version__}
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})


class _Ids(RandomIdGenerator):
    """Random span ids. The next trace that begins here is called as the call says, so that logs and traces share a name."""

    def __init__(self) -> None:
        self.trace_id = 1

    def generate_trace_id(self) -> int:
        """Return the trace id that was set; it is random, as request ids are."""
        return self.trace_id


def _context(call: CallEnded) -> Context:
    parent = call.trace_parent
    if parent is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT)
    context = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(context), Context())
