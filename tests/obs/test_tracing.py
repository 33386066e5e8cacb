import http.server
import logging
import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from headway.core.clock import NS_PER_S, ManualClock
from headway.core.errors import ConfigError
from headway.core.trace_parent import TraceParent
from headway.obs.config import TraceConfig
from headway.obs.trace_setup import open_tracing
from support.ended_calls import MS, ended_call, ended_request

pytest.importorskip("opentelemetry.sdk", reason='needs pip install "headway[gateway]"')

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headway.obs.tracing import MAX_QUEUED, Seldom, Tracing, otlp_exporter

NOW_NS = 1_800_000_000_000_000_000


def tracing(exporter: SpanExporter, sample_ratio: float = 1.0) -> Tracing:
    return Tracing(exporter, sample_ratio=sample_ratio, wall_time_ns=lambda: NOW_NS)


def exported(*calls: object, sample_ratio: float = 1.0) -> Sequence[ReadableSpan]:
    exporter = InMemorySpanExporter()
    traces = tracing(exporter, sample_ratio)
    for call in calls:
        traces.on_call(call)  # type: ignore[arg-type]
    traces.close(timeout_s=60)
    return exporter.get_finished_spans()


def test_a_call_is_one_span_that_ended_when_it_was_told_and_is_called_like_the_request() -> None:
    (span,) = exported(ended_call(request=ended_request(stages=(("prefill", 5 * MS),))))
    assert span.name == "chat m"
    assert span.kind == SpanKind.SERVER
    assert (span.start_time, span.end_time) == (NOW_NS - 20 * MS, NOW_NS)
    assert span.context.trace_id == 1
    assert span.parent is None
    assert span.status.status_code == StatusCode.UNSET
    assert span.attributes is not None
    assert span.attributes["headway.stage.prefill"] == 0.005
    assert span.attributes["headway.sampled_by"] == "ratio"
    assert span.resource.attributes["service.name"] == "headway"


def test_a_call_within_a_trace_is_its_callers_child() -> None:
    (span,) = exported(ended_call(trace_parent=TraceParent(99, 88, sampled=True)))
    assert span.context.trace_id == 99
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (99, 88)


def test_an_error_has_its_code_for_a_status() -> None:
    (span,) = exported(ended_call(status=500, error_code="internal_error"), sample_ratio=0)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "internal_error")


def test_a_call_that_is_not_sampled_has_no_span() -> None:
    calls = [ended_call(), ended_call(service_class="high")]
    assert [
        span.attributes and span.attributes["headway.class"] for span in exported(*calls, sample_ratio=0)
    ] == ["high"]


def test_the_share_of_calls_follows_load_and_is_told() -> None:
    exporter, clock = InMemorySpanExporter(), ManualClock(1)
    traces = Tracing(exporter, sample_ratio=0.99, wall_time_ns=lambda: NOW_NS, clock=clock)
    draw = random.Random(2)
    for _ in range(2000):
        clock.advance(NS_PER_S // 200)
        traces.on_call(ended_call(request_id=f"{draw.getrandbits(128):032x}"))
    traces.close(timeout_s=60)
    spans = exporter.get_finished_spans()
    assert len(spans) < 1000
    ratios = [span.attributes["headway.sample_ratio"] for span in spans if span.attributes]
    assert ratios[0] == 0.99
    assert ratios[-1] == pytest.approx(0.2, rel=0.01)


class HangingExporter(SpanExporter):
    """Takes its first batch and never comes back, until it is released."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        self.released = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        self.hangs.set()
        self.released.wait()
        return SpanExportResult.FAILURE


def test_an_exporter_that_hangs_holds_up_nobody_and_its_queue_is_bounded() -> None:
    exporter = HangingExporter()
    traces = tracing(exporter)
    for _ in range(100):
        traces.on_call(ended_call())
    exporter.hangs.wait()
    for _ in range(2 * MAX_QUEUED):
        traces.on_call(ended_call())
    assert len(traces._processor._batch_processor._queue) == MAX_QUEUED
    traces.close(timeout_s=0)
    assert not exporter.released.is_set()  # so nothing above waited for it
    exporter.released.set()


@pytest.fixture
def silent_collector() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


_HELD_UP_BY_NOBODY = """
import sys
from headway.obs.tracing import Tracing, otlp_exporter
from support.ended_calls import ended_call

traces = Tracing(otlp_exporter(sys.argv[1]), sample_ratio=1.0, wall_time_ns=lambda: 10**18)
for _ in range(200):
    traces.on_call(ended_call())
traces.close(timeout_s=0)
"""


def test_a_collector_that_never_answers_holds_up_neither_calls_nor_the_end_of_the_process(
    silent_collector: str,
) -> None:
    paths = os.pathsep.join(filter(None, sys.path))
    program = [sys.executable, "-c", _HELD_UP_BY_NOBODY, silent_collector]
    began_s = time.monotonic()
    subprocess.run(program, check=True, timeout=60, env=os.environ | {"PYTHONPATH": paths})
    assert time.monotonic() - began_s < 25  # waiting for it would take 30


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes spans; the server's `taken` keeps what came."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.put((self.path, ExportTraceServiceRequest.FromString(body)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        del format, args


@pytest.mark.parametrize("by_environment", [True, False])
def test_spans_reach_a_collector_that_an_option_or_the_environment_names(
    by_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        taken: queue.Queue[tuple[str, Any]] = queue.Queue()
        server.taken = taken  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        if by_environment:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        traces = open_tracing(TraceConfig(endpoint=None if by_environment else url + "/", sample_ratio=1))
        assert traces is not None
        traces.on_call(ended_call(request=ended_request()))
        traces.close(timeout_s=60)
        path, message = taken.get()
        thread.join()
    assert path == "/v1/traces"
    (span,) = message.resource_spans[0].scope_spans[0].spans
    assert (span.name, int.from_bytes(span.trace_id)) == ("chat m", 1)
    assert span.end_time_unix_nano - span.start_time_unix_nano == 20 * MS


def test_a_collector_that_is_gone_does_not_fill_the_log() -> None:
    clock = ManualClock()
    seldom = Seldom(clock)
    line = logging.makeLogRecord({})
    assert [seldom.filter(line) for _ in range(3)] == [True, False, False]
    clock.advance(60 * NS_PER_S)
    assert [seldom.filter(line) for _ in range(2)] == [True, False]
    otlp_exporter("http://127.0.0.1:1")
    otlp_exporter("http://127.0.0.1:1")
    logger = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    assert [type(each) for each in logger.filters] == [Seldom]


def test_the_environment_may_call_the_service_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "east")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    (span,) = exported(ended_call())
    assert span.resource.attributes["service.name"] == "east"
    assert span.resource.attributes["deployment.environment.name"] == "test"


def test_without_a_collector_nothing_is_imported_and_nothing_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    assert open_tracing(TraceConfig()) is None
    program = (
        "import sys; from headway.obs.trace_setup import open_tracing; from headway.obs.config import TraceConfig;"
        "import headway.cli.service; open_tracing(TraceConfig());"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_sdk_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "headway.obs.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r'pip install "headway\[gateway\]"'):
        open_tracing(TraceConfig(endpoint="http://127.0.0.1:1"))
