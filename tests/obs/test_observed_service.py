"""The service with all its listeners: they hear of everything but words, and their bugs stay theirs."""

import logging

import pytest

from headway.core.caller import Caller
from headway.core.events import CallEnded, Event
from headway.core.hooks import also
from headway.core.secret import Secret
from headway.gateway.door import Door
from headway.obs.metrics import Metrics
from support.asgi_client import Exchange
from support.gateway_app import Service, service
from support.scripted_client import answering

pytest.importorskip("opentelemetry.sdk", reason='needs pip install "headway[gateway]"')

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headway.obs.tracing import Tracing

pytestmark = pytest.mark.anyio


class SameForAll:
    """Whoever asks, it is always the same."""

    async def identify(self, shown: Secret | None) -> Caller:
        del shown
        return Caller(token_id="t1", tenant="acme", kind="admin")

    async def close(self) -> None:
        pass


def observed(s: Service) -> tuple[Metrics, Tracing, InMemorySpanExporter]:
    metrics, exporter = Metrics(), InMemorySpanExporter()
    tracing = Tracing(exporter, sample_ratio=1, wall_time_ns=lambda: 10**18)
    s.gateway.hook = also(metrics, CallEnded, tracing.on_call)
    return metrics, tracing, exporter


async def test_what_was_asked_and_answered_is_in_no_metric_no_span_and_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    s = service(answering("QUUX"))
    metrics, tracing, exporter = observed(s)
    async with s.chat(messages=[{"role": "user", "content": "XYZZY"}], user="PLUGH", stream=True) as exchange:
        await exchange.read_body()
    async with s.chat(messages=[{"role": "user", "content": "XYZZY"}], seed="PLUGH") as exchange:
        await exchange.read_body()
    async with s.get("/v1/XYZZY?QUUX=PLUGH") as exchange:
        await exchange.read_body()
    tracing.close(60)
    spans = exporter.get_finished_spans()
    assert len(spans) == 3
    told = metrics.page()[1].decode() + "".join(span.to_json() for span in spans)
    assert "chat fake" in told
    assert not any(word in told for word in ("XYZZY", "QUUX", "PLUGH"))
    lines = [str(record.__dict__) for record in caplog.records if "/v1/XYZZY" not in str(record.__dict__)]
    assert lines
    assert not any(word in line for word in ("XYZZY", "QUUX", "PLUGH") for line in lines)


async def test_metrics_and_spans_name_the_caller_that_the_gateway_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    s = service(answering("ab"), door=Door(SameForAll()))
    metrics, tracing, exporter = observed(s)
    async with s.chat() as exchange:
        await exchange.read_body()
    tracing.close(60)
    page = metrics.page()[1].decode()
    assert 'headway_token_info{kind="admin",tenant="acme",token_id="t1"} 1.0' in page
    assert 'headway_token_ttft_seconds_count{token_id="t1"} 1' in page
    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert (span.attributes["headway.token_id"], span.attributes["headway.sampled_by"]) == ("t1", "kind")
    assert [each.__dict__["token_id"] for each in caplog.records if each.name == "headway.access"] == ["t1"]


@pytest.mark.parametrize("broken_first", [True, False])
async def test_listeners_that_fail_leave_the_answer_as_it_was(broken_first: bool) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError(type(event).__name__)

    async def answer(exchange: Exchange) -> bytes:
        async with exchange:
            body: bytes = await exchange.read_body()
            return body

    whole, failing = service(answering("abc")), service(answering("abc"))
    failing.gateway.hook = (
        also(broken, CallEnded, failing.events.append)
        if broken_first
        else also(failing.events.append, CallEnded, broken)
    )
    fields = {"prompt": "hi", "max_tokens": 3}
    bodies = [await answer(s.complete(**fields)) for s in (whole, failing)]
    assert [body.count(b'"text":"abc"') for body in bodies] == [1, 1]
    assert failing.events
