"""The frontiers of several machines as one page with a plot, in the form of the lab's reports."""

from collections.abc import Mapping, Sequence

from headway.lab.figure_text import number
from headway.lab.html_report import as_page
from headway.lab.plotly_form import BLUE, GREEN, GREY, ORANGE, RED, axis, plain, rounded
from headway.lab.report_section import Plot, Section, Table
from headway.simulator.pareto import Point, frontier

_COLOURS = (BLUE, ORANGE, GREEN, RED, GREY, "#8e6bbf", "#b0762f", "#3aa6a6")


def pareto_page(heading: str, said: Sequence[str], points: Mapping[str, Sequence[Point]]) -> str:
    """Return the page. `said`: what is simulated, a sentence each; `points` of each machine."""
    head = Section(heading=heading, warnings=(said[0],), text=tuple(said[1:]))
    return as_page([head, _plot(points), _table(points)])


def _plot(points: Mapping[str, Sequence[Point]]) -> Section:
    traces: list[Mapping[str, object]] = []
    for (device, found), colour in zip(points.items(), _COLOURS * len(points), strict=False):
        best = frontier(found)
        beaten = [point for point in found if point not in best]
        traces.append(_trace(device, best, colour, "lines+markers"))
        if beaten:
            traces.append({**_trace(device, beaten, colour, "markers"), "opacity": 0.35, "showlegend": False})
    layout = {
        "xaxis": axis("output tokens/s", type="log"),
        "yaxis": axis("P95 of E2E, ms", type="log"),
        "hovermode": "closest",
    }
    return Section(
        heading="Throughput and latency",
        text=(
            (
                "Each dot is a number of users with a size of chunk; to the right the tokens of all of them, upwards the "
                "time in which 95 % had their whole answer. The line joins those that no other of the machine beats in both."
            ),
        ),
        plot=Plot(traces=tuple(traces), layout=layout, height_px=460),
    )


def _trace(device: str, points: Sequence[Point], colour: str, mode: str) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": mode,
        "name": plain(device),
        "x": rounded(point.output_tok_s for point in points),
        "y": rounded(point.e2e_p95_ms for point in points),
        "text": [
            f"{point.setting.num_users} users, chunks of {point.setting.max_prefill_tokens}"
            for point in points
        ],
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 7},
        "hovertemplate": "%{x:.4g} tokens/s, %{y:.4g} ms<br>%{text}<extra>" + plain(device) + "</extra>",
    }


def _table(points: Mapping[str, Sequence[Point]]) -> Section:
    rows = tuple(row(point) for found in points.values() for point in frontier(found))
    return Section(heading="The frontiers", table=Table(head=HEAD, rows=rows))


HEAD = ("device", "users", "chunk", "tokens/s", "E2E p95, ms", "TTFT p95, ms", "ITL p95, ms")


def row(point: Point) -> tuple[str, ...]:
    """Return a point as a row under `HEAD`."""
    return (
        point.device,
        f"{point.setting.num_users:,}",
        f"{point.setting.max_prefill_tokens:,}",
        f"{point.output_tok_s:,.0f}",
        number(point.e2e_p95_ms),
        number(point.ttft_p95_ms),
        number(point.itl_p95_ms),
    )
