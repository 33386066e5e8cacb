"""A report's plots of latency against load: over time, against the prompt's length, against requests at the same time."""

from collections.abc import Iterator, Sequence

from headway.core.clock import NS_PER_MS
from headway.lab.exchange import Exchange
from headway.lab.figure_text import number
from headway.lab.latency import due_ns, itl_ns, ttft_ns
from headway.lab.measurement import RunResult
from headway.lab.plot_data import LEAST_PER_WINDOW, Window, evenly, in_flight, medians, mostly_cached, windows
from headway.lab.plotly_form import BLUE, GREEN, GREY, ORANGE, RED, Trace, axis, dots, plain, rounded
from headway.lab.prompt_line import PromptLine
from headway.lab.report_section import Plot, Section

MOST_POINTS = 2_000
"""Of one plot: as many draw within a second, and a line through them takes two million pairs."""


def rate_section(result: RunResult) -> Section:
    """Return TTFT and the rate of requests over the run."""
    heading = "Latency and rate over time"
    start_ns = min(map(due_ns, result.exchanges), default=0) if result.start_ns is None else result.start_ns
    found = windows(result.exchanges, start_ns)
    if not found:
        text = f"Fewer than {2 * LEAST_PER_WINDOW} requests, or all due at once: there is no course of time to plot."
        return Section(heading=heading, text=(text,))
    text = (
        f"The run in {len(found)} windows of {found[0].width_s:.3g} s: above, how long requests due in a window waited for "
        "their first token; below, how many were due each second. A curve that climbs until the end is a server that does "
        "not keep up."
    )
    traces = [
        _curve(found, "half of them within", [window.ttft_p50_ms for window in found], BLUE),
        _curve(found, "95 % within", [window.ttft_p95_ms for window in found], ORANGE),
        _bars(found, "answered", [window.num_ok for window in found], GREEN),
    ]
    if result.summary.failures:
        traces.append(_bars(found, "failed", [window.num_failed for window in found], RED))
    layout = {
        "xaxis": axis("seconds from the start of the run", anchor="y2"),
        "yaxis": axis("TTFT, ms", domain=[0.42, 1], rangemode="tozero"),
        "yaxis2": axis("requests/s", domain=[0, 0.32], rangemode="tozero"),
        "barmode": "stack",
    }
    plot = Plot(traces=tuple(traces), layout=layout, height_px=440)
    return Section(heading=heading, text=(text,), plot=plot)


def prompt_section(result: RunResult) -> Section:
    """Return TTFT against the prompt tokens that the server had to compute, with the line through it."""
    heading = "Latency and length of the prompt"
    points = sorted(_prompts(result.exchanges), key=lambda point: point[:2])
    if not points:
        text = "No answer said how long its prompt was: there is nothing to plot."
        return Section(heading=heading, text=(text,))
    if points[0][0] == points[-1][0]:
        return Section(heading=heading, text=("All prompts were equally long: there is nothing to compare.",))
    shown = evenly(points, MOST_POINTS)
    cold = [point for point in shown if not mostly_cached(point[2])]
    cached = [point for point in shown if mostly_cached(point[2])]
    any_cached = any(exchange.cached_tokens for _, _, exchange in points)
    what = "prompt tokens that were not in the server's cache" if any_cached else "prompt tokens"
    traces: list[Trace] = []
    for name, colour, of in (("prompt mostly new", BLUE, cold), ("mostly cached", GREEN, cached)):
        if of:
            told = [(float(tokens), ttft_ms, _about(exchange)) for tokens, ttft_ms, exchange in of]
            traces.append(dots(name if cached else "requests", told, colour))
    text = f"Each dot is a request: to the right its {what}, upwards how long its first token took."
    line = result.summary.prompt_line
    if line is not None:
        traces.append(_line(line, shown[0][0], shown[-1][0]))
        low, high = line.interval
        text += (
            f" The line through them says {number(line.ms_per_1k)} ms for 1,000 tokens more (95 % interval "
            f"{number(low)} to {number(high)}); waiting for other requests is in it."
        )
    layout = {"xaxis": axis(what), "yaxis": axis("TTFT, ms", rangemode="tozero")}
    return Section(
        heading=heading,
        text=(text + _bounded(len(shown), len(points)),),
        plot=Plot(traces=tuple(traces), layout=layout, height_px=380),
    )


def concurrency_section(result: RunResult) -> Section:
    """Return TTFT and ITL against the other requests in flight when a request was sent."""
    heading = "Latency and requests at the same time"
    ttfts: list[tuple[float, float]] = []
    itls: list[tuple[float, float]] = []
    for exchange, others in zip(result.exchanges, in_flight(result.exchanges), strict=True):
        ttft, itl = ttft_ns(exchange), itl_ns(exchange)
        if exchange.ok and ttft is not None:
            ttfts.append((others, ttft / NS_PER_MS))
        if exchange.ok and itl is not None:
            itls.append((others, itl / NS_PER_MS))
    levels = {int(others) for others, _ in ttfts}
    if len(levels) < 2:
        told = (
            f"{levels.pop()} others ran when each request was sent" if levels else "No request was answered"
        )
        return Section(heading=heading, text=(f"{told}: there is nothing to compare.",))
    text = (
        "Each dot is a request: to the right how many others were under way when it was sent, upwards how long its first "
        "token took (above) and each further one on average (below)."
    )
    layout = {
        "xaxis": axis("others under way at the start", anchor="y2")
        | ({"dtick": 1} if max(levels) <= 12 else {}),
        "yaxis": axis("TTFT, ms", domain=[0.55, 1], rangemode="tozero"),
        "yaxis2": axis("ITL, ms", domain=[0, 0.45], rangemode="tozero"),
    }
    return Section(
        heading=heading,
        text=(text + _bounded(min(len(ttfts), MOST_POINTS), len(ttfts)),),
        plot=Plot(
            traces=(*_levels("TTFT", ttfts, "y"), *_levels("ITL", itls, "y2")), layout=layout, height_px=460
        ),
    )


def _prompts(exchanges: Sequence[Exchange]) -> Iterator[tuple[int, float, Exchange]]:
    """Prompt tokens that the server had to compute, and TTFT in milliseconds, where usage tells of them."""
    for exchange in exchanges:
        ttft, usage = ttft_ns(exchange), exchange.answer.usage
        if exchange.ok and ttft is not None and usage is not None and usage.prompt_tokens:
            yield max(0, usage.prompt_tokens - (usage.cached_tokens or 0)), ttft / NS_PER_MS, exchange


def _about(exchange: Exchange) -> str:
    usage = exchange.answer.usage
    assert usage is not None
    cached = f", {usage.cached_tokens:,} of them cached" if usage.cached_tokens else ""
    return plain(f"{exchange.label}, turn {exchange.turn}: {usage.prompt_tokens:,} prompt tokens{cached}")


def _bounded(num_shown: int, num_all: int) -> str:
    return f" {num_shown:,} of {num_all:,} requests are shown, evenly taken." if num_shown < num_all else ""


def _curve(found: Sequence[Window], name: str, ttft_ms: Sequence[float | None], colour: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": _middles(found),
        "y": [None if value is None else round(value, 4) for value in ttft_ms],
        "line": {"color": colour},
        "marker": {"size": 5},
        "hovertemplate": "%{y:.4g} ms<extra></extra>",
    }


def _bars(found: Sequence[Window], name: str, counts: Sequence[int], colour: str) -> Trace:
    return {
        "type": "bar",
        "name": name,
        "x": _middles(found),
        "y": rounded(count / window.width_s for count, window in zip(counts, found, strict=True)),
        "width": found[0].width_s,
        "marker": {"color": colour},
        "yaxis": "y2",
        "hovertemplate": "%{y:.3g} a second<extra></extra>",
    }


def _middles(found: Sequence[Window]) -> list[float]:
    return rounded(window.start_s + window.width_s / 2 for window in found)


def _line(line: PromptLine, low: float, high: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{number(line.ms_per_1k)} ms per 1,000 tokens",
        "x": [low, high],
        "y": rounded(line.base_ms + line.ms_per_1k * tokens / 1_000 for tokens in (low, high)),
        "line": {"color": ORANGE, "width": 2},
        "hoverinfo": "name",
    }


def _levels(what: str, points: Sequence[tuple[float, float]], on: str) -> Iterator[Trace]:
    """Dots and their medians on the axis `on`; the legend names them once."""
    shown = evenly(sorted(points), MOST_POINTS)
    told = [(others, value, f"{what}, {others:.0f} others") for others, value in shown]
    yield dots("requests", told, GREY) | {"yaxis": on, "showlegend": on == "y"}
    middles = medians([others for others, _ in points], [value for _, value in points])
    yield {
        "type": "scatter",
        "mode": "markers",
        "name": "their median",
        "x": rounded(others for others, _ in middles),
        "y": rounded(value for _, value in middles),
        "marker": {"color": BLUE, "size": 11, "symbol": "diamond"},
        "cliponaxis": False,
        "hovertemplate": f"half of them within %{{y:.4g}} ms ({what})<extra></extra>",
        "yaxis": on,
        "showlegend": on == "y",
    }
