"""A run as the server's own metrics tell it, beside what the client measured: Headway's, vLLM's and llama-server's names.

Each names its metrics in its own way, and counts requests of others as well. What a server does not tell is None.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from headway.lab.endpoint import Endpoint
from headway.lab.figures import rounded
from headway.lab.metric_page import Bucketed, Growth, Labels, MetricPage, growth, parse_page
from headway.lab.side_request import body_of

ROUTE = "/metrics"

_MODEL_LABELS = ("model", "model_name")
_TRIES = 5
_RETRY_S = 0.1
"""A server may count a request a moment after its last byte."""

Source = Literal["headway", "vllm", "llama-server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """What the server counted during a run; times are those of all its requests. None: it does not tell."""

    source: Source
    restarted: bool
    """It restarted during the run; everything here is of the time since then."""
    num_requests: int | None
    """Requests that ended."""
    num_other_requests: int | None
    """More than this run sent: somebody else's, among whose times ours are."""
    num_unseen_requests: int | None
    """Fewer than this run had answers to: others of several servers behind one address saw them."""
    prompt_tokens: int | None
    cached_tokens: int | None
    """Of the prompts', those that it had not to compute again."""
    output_tokens: int | None
    ttft: Bucketed | None
    queue: Bucketed | None
    """Time in its queue."""
    itl: Bucketed | None
    tpot: Bucketed | None
    e2e: Bucketed | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What a server calls its metrics. Each is one of several names, by version; `+` adds counters up."""

    requests: tuple[str, ...] = ()
    prompt_tokens: tuple[str, ...]
    cached_tokens: tuple[str, ...]
    output_tokens: tuple[str, ...]
    ttft: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    itl: tuple[str, ...] = ()
    tpot: tuple[str, ...] = ()
    e2e: tuple[str, ...] = ()

    def all(self) -> set[str]:
        return {
            name
            for field in fields(self)
            for either in getattr(self, field.name)
            for name in either.split("+")
        }


_NAMES: dict[Source, _Names] = {
    "headway": _Names(
        requests=("headway_requests",),
        prompt_tokens=("headway_prompt_tokens",),
        cached_tokens=("headway_prefix_cache_hit_tokens",),
        output_tokens=("headway_completion_tokens",),
        ttft=("headway_time_to_first_token_seconds",),
        queue=("headway_request_queue_time_seconds",),
        itl=("headway_inter_token_latency_seconds",),
        tpot=("headway_time_per_output_token_seconds",),
        e2e=("headway_request_duration_seconds",),
    ),
    "vllm": _Names(  # as in v1/metrics/loggers.py of 0.32; what 0.8 called otherwise after it
        requests=("vllm:request_success",),
        prompt_tokens=("vllm:prompt_tokens",),
        cached_tokens=("vllm:prompt_tokens_cached", "vllm:prefix_cache_hits"),
        output_tokens=("vllm:generation_tokens",),
        ttft=("vllm:time_to_first_token_seconds",),
        queue=("vllm:request_queue_time_seconds",),
        itl=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        tpot=("vllm:request_time_per_output_token_seconds",),
        e2e=("vllm:e2e_request_latency_seconds",),
    ),
    "llama-server": _Names(  # its prompt tokens are those it computed; without --metrics it has none
        prompt_tokens=("llamacpp:prompt_tokens+llamacpp:prompt_tokens_cached",),
        cached_tokens=("llamacpp:prompt_tokens_cached",),
        output_tokens=("llamacpp:tokens_predicted",),
    ),
}
"""By family: a counter's samples end in `_total`."""


async def scrape(endpoint: Endpoint) -> MetricPage | None:
    """Return what the server's `/metrics` tells now; None where it has none, whatever it answers instead."""
    root = endpoint.at_root()
    body = await body_of(root, root.get(ROUTE))
    return None if body is None else parse_page(body.decode(errors="replace"))


async def view_since(
    endpoint: Endpoint, before: MetricPage | None, model: str, *, num_sent: int | None, num_ok: int
) -> ServerView | None:
    """Return what the server counted since `before`; None where it has no metrics, or none that we know.

    `num_sent` None: it is not known how many requests reached it. Waits a little for it to count the `num_ok` that ended.
    """
    if before is None:
        return None
    view = None
    for attempt in range(_TRIES):
        if attempt:
            await asyncio.sleep(_RETRY_S)
        after = await scrape(endpoint)
        view = None if after is None else server_view(before, after, model, num_sent, num_ok)
        if view is None or view.restarted or view.num_requests is None or view.num_requests >= num_ok:
            break
    return view


def server_view(
    before: MetricPage, after: MetricPage, model: str, num_sent: int | None, num_ok: int
) -> ServerView | None:
    """Return what was counted between two pages, of `model` where they tell models apart; None: no name that we know."""
    found = ((source, names, growth(before, after, names.all())) for source, names in _NAMES.items())
    known = next(((source, names, grown) for source, names, grown in found if grown.series), None)
    if known is None:
        return None
    source, names, grown = known
    is_wanted = _of_model(grown, model)

    def total(either: tuple[str, ...]) -> int | None:
        for name in either:
            found = [grown.total(f"{part}_total", is_wanted) for part in name.split("+")]
            counts = [count for count in found if count is not None]
            if len(counts) == len(found):
                return sum(counts)
        return None

    def times(either: tuple[str, ...]) -> Bucketed | None:
        return next((found for name in either if (found := grown.histogram(name, is_wanted))), None)

    num_requests = total(names.requests)
    counted = None if grown.restarted else num_requests
    return ServerView(
        source=source,
        restarted=grown.restarted,
        num_requests=num_requests,
        num_other_requests=None if counted is None or num_sent is None else max(0, counted - num_sent),
        num_unseen_requests=None if counted is None else max(0, num_ok - counted),
        prompt_tokens=total(names.prompt_tokens),
        cached_tokens=total(names.cached_tokens),
        output_tokens=total(names.output_tokens),
        ttft=times(names.ttft),
        queue=times(names.queue),
        itl=times(names.itl),
        tpot=times(names.tpot),
        e2e=times(names.e2e),
    )


def as_json(view: ServerView) -> dict[str, object]:
    """Return the view as JSON's types; a bound without end is "inf"."""
    return {
        "source": view.source,
        "restarted": view.restarted,
        "requests": view.num_requests,
        "other_requests": view.num_other_requests,
        "unseen_requests": view.num_unseen_requests,
        "prompt_tokens": view.prompt_tokens,
        "cached_tokens": view.cached_tokens,
        "output_tokens": view.output_tokens,
        "ttft_ms": _times_json(view.ttft),
        "queue_ms": _times_json(view.queue),
        "itl_ms": _times_json(view.itl),
        "tpot_ms": _times_json(view.tpot),
        "e2e_ms": _times_json(view.e2e),
    }


def _times_json(times: Bucketed | None) -> dict[str, object] | None:
    if times is None:
        return None
    percentiles = {
        name: None if bounds is None else [rounded(bound) for bound in bounds]
        for name, bounds in times.percentiles.items()
    }
    return {"n": times.n, "mean": rounded(times.mean), **percentiles}


def _of_model(grown: Growth, model: str) -> Callable[[Labels], bool]:
    """Take the series of `model` where there are any; a server may know it under another name."""
    wanted = {(label, model) for label in _MODEL_LABELS}
    if any(wanted & labels for series in grown.series.values() for labels in series):
        return lambda labels: bool(wanted & labels)
    return lambda _: True
