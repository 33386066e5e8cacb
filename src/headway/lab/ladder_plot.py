"""A report's plot of a ladder: the P95 of TTFT at each rate that was tried, with its interval, and the limit."""

import math

from headway.lab.ladder_run import LadderStep
from headway.lab.measurement import RunResult
from headway.lab.plotly_form import GREEN, ORANGE, RED, Trace, axis, rounded
from headway.lab.report_section import Plot, Section


def ladder_section(result: RunResult) -> Section | None:
    """Return latency against rate, a dot for each step of the ladder; None without a ladder."""
    ladder = result.ladder
    if ladder is None:
        return None
    heading = "Latency and rate"
    drawn = [step for step in ladder.steps if math.isfinite(step.measured.p95_ms)]
    text = (
        "Each dot is a step of the ladder: to the right the rate that was tried, upwards the TTFT that 95 % of its requests "
        "kept, with its 95 % interval; an arrow where it has no upper end."
    )
    if len(drawn) < len(ladder.steps):
        num_endless = len(ladder.steps) - len(drawn)
        text += (
            f" {num_endless} of {len(ladder.steps)} steps are not drawn: more than 5 % failed, or still waited when the "
            "step was decided."
        )
    if not drawn:
        return Section(heading=heading, text=("No step has a P95 to plot.",))
    kept = [step for step in drawn if step.measured.slo_kept and step.measured.p95_high_ms <= ladder.limit_ms]
    others = [step for step in drawn if step not in kept]
    rates = [step.measured.rate for step in drawn]
    limit: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": f"limit: {ladder.limit_ms:,.4g} ms",
        "x": [min(rates), max(rates)],
        "y": [ladder.limit_ms] * 2,
        "line": {"color": ORANGE, "width": 2},
        "hoverinfo": "name",
    }
    traces = [
        *(
            _dots(name, of, colour)
            for name, of, colour in (("kept", kept, GREEN), ("not kept beyond doubt", others, RED))
            if of
        ),
        limit,
    ]
    layout = {"xaxis": axis("requests/s"), "yaxis": axis("P95 of TTFT, ms", rangemode="tozero")}
    return Section(
        heading=heading,
        text=(text,),
        plot=Plot(traces=tuple(traces), layout=layout, height_px=380),
    )


def _dots(name: str, steps: list[LadderStep], colour: str) -> Trace:
    found = [step.measured for step in steps]
    ends = [each.p95_high_ms if math.isfinite(each.p95_high_ms) else each.p95_ms for each in found]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": rounded(each.rate for each in found),
        "y": rounded(each.p95_ms for each in found),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded(end - each.p95_ms for end, each in zip(ends, found, strict=True)),
            "arrayminus": rounded(each.p95_ms - each.p95_low_ms for each in found),
            "color": colour,
        },
        "marker": {
            "color": colour,
            "size": 9,
            "symbol": ["circle" if math.isfinite(each.p95_high_ms) else "triangle-up" for each in found],
        },
        "hovertemplate": "%{y:.4g} ms at %{x:.4g} a second<extra></extra>",
    }
