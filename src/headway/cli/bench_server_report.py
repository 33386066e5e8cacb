"""What `headway bench` prints of the server: its own view of a run beside ours, and what prompts were measured with."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import numpy as np

from headway.cli.table import aligned
from headway.core.clock import NS_PER_MS
from headway.lab.arrival_table import itl_samples
from headway.lab.distribution import Distribution, describe
from headway.lab.exchange import Exchange
from headway.lab.figure_text import number
from headway.lab.goodput import values
from headway.lab.latency import e2e_from_dispatch_ns, tpot_ns, ttft_from_dispatch_ns
from headway.lab.measurement import RunResult
from headway.lab.metric_page import Bucketed
from headway.lab.server_metrics import ServerView
from headway.lab.server_metrics import as_json as view_json

_SHOWN = ("p50", "p95", "p99")


def as_json(result: RunResult) -> dict[str, object]:
    """Return the keys that this adds to a result's object."""
    return {
        "prompt_lengths": None if result.token_estimate is None else asdict(result.token_estimate),
        "server": None if result.server is None else view_json(result.server),
    }


def lines(result: RunResult) -> Iterator[str]:
    """Yield the lines that this adds to a result's text; none where the server told nothing."""
    if result.token_estimate is not None:
        estimate = result.token_estimate
        by = "as the server counted samples" if estimate.source == "server" else "an assumption"
        yield f"prompts got their lengths by {estimate.chars_per_token:.3g} characters for each token, {by}"
    view = result.server
    if view is None:
        return
    yield ""
    yield from _warnings(view, result.summary.num_ok)
    yield from _table(view, result)
    counted = {
        "requests": view.num_requests,
        "prompt tokens": view.prompt_tokens,
        "of them cached": view.cached_tokens,
        "output tokens": view.output_tokens,
    }
    told = ", ".join(f"{number:,} {name}" for name, number in counted.items() if number is not None)
    if told:
        yield f"{view.source}'s own metrics counted {told}"


def _warnings(view: ServerView, num_ok: int) -> Iterator[str]:
    if view.restarted:
        yield "The server restarted during the run: it counts since then alone."
    if view.num_other_requests:
        yield (
            f"The server answered {view.num_other_requests:,} requests of others meanwhile: they are among its figures, and "
            "took their time from ours."
        )
    if view.num_unseen_requests:
        yield (
            f"The server saw {num_ok - view.num_unseen_requests:,} of {num_ok:,} answered requests: it is one of several "
            "behind this address."
        )


def _table(view: ServerView, result: RunResult) -> Iterator[str]:
    # Of all requests, warm-up too, as the server counts them.
    ok = [exchange for exchange in result.exchanges if exchange.ok]
    ours: tuple[tuple[str, Bucketed | None, Distribution | None], ...] = (
        ("TTFT", view.ttft, _of(ttft_from_dispatch_ns, ok)),
        ("ITL", view.itl, describe(itl_samples(ok)[0])),
        ("TPOT", view.tpot, _of(tpot_ns, ok)),
        ("E2E", view.e2e, _of(e2e_from_dispatch_ns, ok)),
        ("queue", view.queue, None),
    )
    rows: list[tuple[str, ...]] = [("ms, as the server sees it", *_SHOWN, "mean", "n")]
    for name, theirs, found in ours:
        if theirs is None:
            continue
        rows.append((name, *(_between(theirs, shown) for shown in _SHOWN), _ms(theirs.mean), f"{theirs.n:,}"))
        if found is not None:
            measured = (_ms(found.percentiles[shown]) for shown in _SHOWN)
            rows.append(("  the client", *measured, _ms(found.mean), f"{found.n:,}"))
    if len(rows) > 1:
        yield from aligned(rows, "<>>>>>")


def _of(figure: Callable[[Exchange], float | None], ok: Sequence[Exchange]) -> Distribution:
    """Without regard to conversations, whose resampling would take seconds for intervals that nothing shows."""
    return describe(np.asarray(values(figure, ok).successes) / NS_PER_MS)


def _between(times: Bucketed, name: str) -> str:
    bounds = times.percentiles[name]
    if bounds is None:
        return "-"
    lower, upper = bounds
    return f"over {number(lower)}" if upper == float("inf") else f"{number(lower)} to {number(upper)}"


def _ms(value: float | None) -> str:
    return "-" if value is None else number(value)
