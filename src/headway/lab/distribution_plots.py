"""A report's distributions: TTFT and the time between tokens, with their percentiles marked."""

from collections.abc import Iterator, Sequence

from headway.core.clock import NS_PER_MS
from headway.lab.distribution import Distribution
from headway.lab.figure_text import percentile_text
from headway.lab.latency import intervals, ttft_ns
from headway.lab.measurement import RunResult
from headway.lab.plot_data import Histogram, counted, histogram, mostly_cached
from headway.lab.plotly_form import BLUE, GREEN, ORANGE, RED, Trace, axis, rounded
from headway.lab.report_section import Plot, Section

LEAST_OF_KIND = 8
"""Requests; the shape of fewer says nothing."""
_MARKED = (("p50", ORANGE), ("p95", RED))


def ttft_section(result: RunResult) -> Section:
    """Return the distribution of TTFT; prompts that the server had mostly in its cache apart, where it says so."""
    heading = "Time to the first token"
    cached: list[float] = []
    cold: list[float] = []
    for exchange in counted(result):
        found = ttft_ns(exchange)
        if exchange.ok and found is not None:
            (cached if mostly_cached(exchange) else cold).append(found / NS_PER_MS)
    if not cached and not cold:
        return Section(heading=heading, text=("No request was answered: there is nothing to plot.",))
    text = "How many requests waited how long. Taller means more of them, further to the right slower."
    drawn = [("requests", histogram(cold + cached), BLUE)]
    if min(len(cached), len(cold)) >= LEAST_OF_KIND:
        text += " Those with most of their prompt in the server's cache stand apart; shares are of each kind."
        drawn = [("prompt mostly new", histogram(cold), BLUE), ("mostly cached", histogram(cached), GREEN)]
    num_failed = result.summary.num_offered - result.summary.num_ok
    if num_failed:
        text += f" The {num_failed:,} that failed are in no distribution here."
    plot = _plot(drawn, result.summary.ttft.successes, "of the requests")
    return Section(heading=heading, text=(text,), plot=plot)


def itl_section(result: RunResult) -> Section:
    """Return the distribution of the time between tokens."""
    heading = "Time between tokens"
    runs = [run for exchange in counted(result) if exchange.ok for run in intervals(exchange).runs]
    if not runs:
        text = "No answer had tokens that came one after another: there is nothing to plot."
        return Section(heading=heading, text=(text,))
    found = histogram([run.each_ns / NS_PER_MS for run in runs], [run.num_tokens for run in runs])
    text = (
        "How long a token came after the one before. Two hills are usual where a server reads other prompts in between; far "
        "to the right are pauses that a reader sees."
    )
    plot = _plot([("tokens", found, BLUE)], result.summary.itl, "of the tokens")
    return Section(heading=heading, text=(text,), plot=plot)


def _plot(drawn: Sequence[tuple[str, Histogram, str]], figures: Distribution, share: str) -> Plot:
    top = 1.05 * max(max(found.shares) for _, found, _ in drawn)
    marks = [mark for name, colour in _MARKED for mark in _mark(figures, name, colour, top)]
    logarithmic = any(found.logarithmic for _, found, _ in drawn)
    layout = {
        "xaxis": axis("milliseconds", type="log" if logarithmic else "linear"),
        "yaxis": axis(share, tickformat=".1~%", range=[0, top]),
    }
    return Plot(traces=(*(_steps(*each) for each in drawn), *marks), layout=layout)


def _steps(name: str, found: Histogram, colour: str) -> Trace:
    """A histogram as a line: plotly's bars have no widths on a logarithmic axis."""
    edges, shares = rounded(found.edges), rounded(found.shares)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [edges[0], *edges, edges[-1]],
        "y": [0, *shares, shares[-1], 0],
        "line": {"shape": "hv", "color": colour, "width": 1.5},
        "fill": "tozeroy",
        "hovertemplate": "%{y:.1%} from %{x:.4g} ms on<extra></extra>",
    }


def _mark(figures: Distribution, name: str, colour: str, top: float) -> Iterator[Trace]:
    """A line at a percentile, and its interval as a band that comes and goes with it."""
    value, interval = figures.percentiles[name], figures.intervals[name]
    if value is None:
        return
    if interval is not None:
        low, high = rounded(interval)
        yield {
            "type": "scatter",
            "mode": "lines",
            "x": [low, high, high, low],
            "y": [0, 0, top, top],
            "fill": "toself",
            "fillcolor": colour,
            "opacity": 0.14,
            "line": {"width": 0},
            "hoverinfo": "skip",
            "legendgroup": name,
            "showlegend": False,
        }
    yield {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name}: {percentile_text(figures, name)} ms",
        "x": rounded((value, value)),
        "y": [0, top],
        "line": {"color": colour, "width": 2},
        "hoverinfo": "name",
        "legendgroup": name,
    }
