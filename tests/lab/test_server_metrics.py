"""A run as three kinds of servers tell it, each in its own names, and servers that tell nothing."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from headway.core.events import EngineStepped, FirstToken, RequestEnded, TokensArrived
from headway.core.messages import EngineStats, Usage
from headway.core.request import ServiceClass
from headway.lab.endpoint import Endpoint
from headway.lab.measurement import measure
from headway.lab.metric_page import Bucketed, MetricPage, parse_page
from headway.lab.run_options import RunOptions
from headway.lab.server_metrics import ServerView, as_json, scrape, server_view, view_since
from headway.obs.metrics import Metrics
from support.plain_server import serving

MS = 1_000_000


def page(text: str) -> MetricPage:
    found = parse_page(text)
    assert found is not None
    return found


def of_headway(metrics: Metrics) -> str:
    return metrics.page()[1].decode()


def serve_one(
    metrics: Metrics, model: str = "m", ttft_ms: int = 30, service_class: ServiceClass = "normal"
) -> None:
    """Have a server of ours count one request of 7 prompt tokens and 3 of its answer."""
    usage = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=0)
    metrics(FirstToken(request_id="r", model=model, ttft_ns=ttft_ms * MS, service_class=service_class))
    for _ in range(2):
        metrics(TokensArrived(request_id="r", model=model, num_tokens=1, interval_ns=6 * MS))
    metrics(
        RequestEnded(
            request_id="r",
            model=model,
            outcome="stop",
            status=200,
            usage=usage,
            ttft_ns=ttft_ms * MS,
            queue_ns=2 * MS,
            tpot_ns=6 * MS,
            e2e_ns=(ttft_ms + 12) * MS,
            service_class=service_class,
        )
    )


def seen(
    before: str, after: str, *, model: str = "m", num_sent: int | None = 3, num_ok: int = 3
) -> ServerView:
    view = server_view(page(before), page(after), model, num_sent, num_ok)
    assert view is not None
    return view


def bounds(times: Bucketed | None, name: str = "p50") -> tuple[float, float] | None:
    assert times is not None
    return times.percentiles[name]


def test_headways_metrics_are_read_by_the_names_it_has() -> None:
    metrics = Metrics()
    serve_one(metrics)
    before = of_headway(metrics)
    for _ in range(3):
        serve_one(metrics)
    metrics(EngineStepped(model="m", stats=EngineStats(prefix_hit_tokens_total=16)))
    view = seen(before, of_headway(metrics))
    assert (view.source, view.restarted) == ("headway", False)
    assert (view.num_requests, view.num_other_requests, view.num_unseen_requests) == (3, 0, 0)
    assert (view.prompt_tokens, view.cached_tokens, view.output_tokens) == (21, 16, 9)
    assert bounds(view.ttft) == (20, 40)
    assert bounds(view.queue) == (1, 5)
    assert bounds(view.itl) == bounds(view.tpot) == (5, 10)
    assert bounds(view.e2e) == (40, 80)
    assert view.ttft is not None
    assert view.ttft.n == 3
    assert view.ttft.mean == pytest.approx(30)
    assert view.itl is not None
    assert view.itl.n == 6


def test_requests_of_every_class_are_one_view() -> None:
    metrics = Metrics()
    before = of_headway(metrics)
    classes: tuple[ServiceClass, ...] = ("high", "normal", "low")
    for service_class in classes:
        serve_one(metrics, service_class=service_class)
    view = seen(before, of_headway(metrics))
    assert (view.restarted, view.num_requests, view.num_other_requests) == (False, 3, 0)
    assert view.ttft is not None
    assert view.ttft.n == 3
    assert view.ttft.mean == pytest.approx(30)


def test_other_models_of_one_server_are_left_out() -> None:
    metrics = Metrics()
    serve_one(metrics)
    serve_one(metrics, "other")
    before = of_headway(metrics)
    serve_one(metrics)
    for _ in range(5):
        serve_one(metrics, "other", ttft_ms=300)
    view = seen(before, of_headway(metrics), num_sent=1, num_ok=1)
    assert (view.num_requests, view.num_other_requests, bounds(view.ttft)) == (1, 0, (20, 40))
    everything = seen(before, of_headway(metrics), model="a name of its own")
    assert everything.num_requests == 6


def test_others_requests_and_those_it_did_not_see_are_told() -> None:
    metrics = Metrics()
    serve_one(metrics)
    before = of_headway(metrics)
    for _ in range(10):
        serve_one(metrics)
    after = of_headway(metrics)
    busy = seen(before, after, num_sent=7, num_ok=6)
    assert (busy.num_other_requests, busy.num_unseen_requests) == (3, 0)
    replica = seen(before, after, num_sent=22, num_ok=20)
    assert (replica.num_other_requests, replica.num_unseen_requests) == (0, 10)
    assert seen(before, after, num_sent=None).num_other_requests is None


def test_a_restart_is_told_and_compares_nothing() -> None:
    metrics = Metrics()
    for _ in range(5):
        serve_one(metrics)
    new = Metrics()
    serve_one(new)
    view = seen(of_headway(metrics), of_headway(new))
    assert (view.restarted, view.num_requests) == (True, 1)
    assert (view.num_other_requests, view.num_unseen_requests) == (None, None)


class OfVllm:
    """A page with the names and labels of vLLM: two engines, one model."""

    LABELS = ("model_name", "engine")

    def __init__(self, itl: str = "vllm:inter_token_latency_seconds") -> None:
        self.registry = CollectorRegistry()
        self.done = Counter(
            "vllm:request_success", "", [*self.LABELS, "finished_reason"], registry=self.registry
        )
        names = ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits")
        self.tokens = {
            name: Counter(f"vllm:{name}", "", self.LABELS, registry=self.registry) for name in names
        }
        times = ("vllm:time_to_first_token_seconds", "vllm:request_queue_time_seconds", itl)
        self.times = [
            Histogram(name, "", self.LABELS, registry=self.registry, buckets=(0.01, 0.02, 0.04, 0.08))
            for name in (*times, "vllm:e2e_request_latency_seconds")
        ]

    def serve_one(self, engine: str) -> None:
        self.done.labels("m", engine, "length").inc()
        for name, number in (("prompt_tokens", 100), ("generation_tokens", 4), ("prefix_cache_hits", 64)):
            self.tokens[name].labels("m", engine).inc(number)
        for histogram, value_s in zip(self.times, (0.03, 0.001, 0.015, 0.075), strict=True):
            histogram.labels("m", engine).observe(value_s)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


@pytest.mark.parametrize("itl", ["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"])
def test_vllms_engines_are_added_up(itl: str) -> None:
    server = OfVllm(itl)
    server.serve_one("0")
    before = server.text()
    for engine in "011":
        server.serve_one(engine)
    view = seen(before, server.text())
    assert (view.source, view.restarted, view.num_requests) == ("vllm", False, 3)
    assert (view.prompt_tokens, view.cached_tokens, view.output_tokens) == (300, 192, 12)
    assert [bounds(times) for times in (view.ttft, view.queue, view.itl, view.e2e)] == [
        (20, 40),
        (0, 10),
        (10, 20),
        (40, 80),
    ]
    assert view.tpot is None


def of_llama(prompt: int, cached: int | None, predicted: int) -> str:
    values = {"prompt_tokens": prompt, "prompt_tokens_cached": cached, "tokens_predicted": predicted}
    return "".join(
        f"# TYPE llamacpp:{name}_total counter\nllamacpp:{name}_total {value}\n"
        for name, value in values.items()
        if value is not None
    )


@pytest.mark.parametrize(("cached", "prompt_tokens"), [((10, 30), 95), ((None, None), None)])
def test_llama_server_counts_tokens_alone(
    cached: tuple[int | None, int | None], prompt_tokens: int | None
) -> None:
    view = seen(of_llama(5, cached[0], 1), of_llama(80, cached[1], 41))
    assert (view.source, view.output_tokens) == ("llama-server", 40)
    assert view.prompt_tokens == prompt_tokens
    assert (view.num_requests, view.num_other_requests, view.ttft) == (None, None, None)


def test_names_of_nobody_are_no_view() -> None:
    text = "# TYPE http_requests_total counter\nhttp_requests_total 1\n"
    assert server_view(page(text), page(text), "m", 1, 1) is None


def test_as_json_it_names_bounds_and_what_is_not_told() -> None:
    metrics = Metrics()
    before = of_headway(metrics)
    serve_one(metrics, ttft_ms=90_000)
    told = json.loads(json.dumps(as_json(seen(before, of_headway(metrics), num_sent=1, num_ok=1))))
    assert told["ttft_ms"]["p50"] == [80_000, "inf"]
    assert told["ttft_ms"]["p99"] is None
    assert told["ttft_ms"]["mean"] == 90_000
    assert (told["source"], told["requests"], told["other_requests"]) == ("headway", 1, 0)
    assert as_json(seen(of_llama(0, 0, 0), of_llama(1, 1, 1)))["ttft_ms"] is None
    assert not any(
        isinstance(value, float) and math.isinf(value) for figure in told.values() for value in values(figure)
    )


def values(figure: object) -> Sequence[object]:
    return list(figure.values()) if isinstance(figure, dict) else [figure]


@pytest.mark.anyio
async def test_a_server_that_counts_late_is_waited_for() -> None:
    metrics = Metrics()
    before = page(of_headway(metrics))
    asked: list[str] = []

    def answer(_method: str, path: str, _body: bytes) -> tuple[int, bytes]:
        asked.append(path)
        if len(asked) == 3:
            serve_one(metrics)
        return 200, of_headway(metrics).encode()

    async with serving(answer) as endpoint:
        view = await view_since(endpoint, before, "m", num_sent=1, num_ok=1)
    assert view is not None
    assert view.num_requests == 1
    assert asked == ["/metrics"] * 3


@pytest.mark.anyio
@pytest.mark.parametrize("told", [(404, b""), (200, b"<html>\xff{"), (500, b"")])
async def test_no_metrics_are_no_error(told: tuple[int, bytes]) -> None:
    async with serving(lambda *_: told) as endpoint:
        assert await scrape(endpoint) is None
        assert await view_since(endpoint, None, "m", num_sent=1, num_ok=1) is None
        assert await view_since(endpoint, page(""), "m", num_sent=1, num_ok=1) is None
    assert await scrape(replace(endpoint, port=1)) is None


@pytest.mark.anyio
async def test_a_run_brings_the_servers_view() -> None:
    metrics = Metrics()
    stream = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n'

    def answer(_method: str, path: str, _body: bytes) -> tuple[int, bytes]:
        if path == "/metrics":
            return 200, of_headway(metrics).encode()
        if path.endswith("completions"):
            serve_one(metrics)
            return 200, stream
        return 404, b""

    async with serving(answer) as endpoint:
        for _ in range(2):  # what was counted before is not of the second run
            found = await measure(RunOptions(endpoint=endpoint, model="m", num_requests=4))
            assert found.summary.num_ok == 4
            assert found.server is not None
            assert (found.server.num_requests, found.server.num_other_requests) == (4, 0)


@pytest.mark.anyio
async def test_nobody_has_no_view() -> None:
    nobody = Endpoint(host="127.0.0.1", port=1, path="/v1")
    found = await measure(RunOptions(endpoint=nobody, model="m", num_requests=1))
    assert found.server is None
