"""The waterfall of a report: one bar a request, cut into what its time went to. It chooses and cuts; plotly.js draws."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.exchange import Exchange
from headway.lab.latency import due_ns
from headway.lab.measurement import RunResult
from headway.lab.plot_data import evenly
from headway.lab.plotly_form import BLUE, GREEN, GREY, ORANGE, RED, Trace, axis, plain
from headway.lab.report_section import Plot, Section

MOST_ROWS = 200
"""Of more, a row is thinner than a screen shows."""
MOST_MESSAGE = 200
"""Characters of a failure's message."""

_RUN_CLOCK = "seconds from the start of the run"

PartName = Literal["lag", "connection", "first_token", "tokens"]
_PARTS: Final[dict[PartName, tuple[str, str]]] = {
    "lag": ("client late", GREY),
    "connection": ("connection", GREEN),
    "first_token": ("queue and prompt, until the first token", ORANGE),
    "tokens": ("tokens, until the last", BLUE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one stretch of a request's time went to."""

    name: PartName
    from_ns: int
    to_ns: int


def parts(exchange: Exchange) -> list[Part]:
    """Cut a request's time, from when it was due to its last content, or to its end if it failed; no part is empty."""
    stamps, events = exchange.stamps, exchange.text_events
    connected_ns = stamps.dispatched_ns + stamps.setup_ns
    first_ns = events[0].at_ns if events else stamps.ended_ns
    last_ns = events[-1].at_ns if events and exchange.ok else stamps.ended_ns
    cut = [
        Part(name="lag", from_ns=due_ns(exchange), to_ns=stamps.dispatched_ns),
        Part(name="connection", from_ns=stamps.dispatched_ns, to_ns=connected_ns),
        Part(name="first_token", from_ns=connected_ns, to_ns=first_ns),
        Part(name="tokens", from_ns=first_ns, to_ns=last_ns),
    ]
    return [part for part in cut if part.to_ns > part.from_ns]


def waterfall_section(result: RunResult) -> Section:
    """Return the requests in the order in which they were due, `MOST_ROWS` at most, evenly taken."""
    heading = "Requests one by one"
    if not result.exchanges:
        return Section(heading=heading, text=("No request was sent.",))
    rows = evenly(sorted(result.exchanges, key=due_ns), MOST_ROWS)
    text = (
        "One line a request, from top to bottom in the order in which they were due: what its time went to."
    )
    if any(not exchange.ok for exchange in rows):
        text += " A cross ends those that failed."
    if len(rows) < len(result.exchanges):
        text += f" {len(rows)} of {len(result.exchanges):,} are shown, evenly taken; others may have failed."
    start_ns = due_ns(rows[0]) if result.start_ns is None else result.start_ns
    on_run_clock = _traces(rows, [start_ns] * len(rows))
    on_own_clock = _traces(rows, [due_ns(exchange) for exchange in rows])
    layout = {
        "xaxis": axis(_RUN_CLOCK),
        "yaxis": axis("requests", autorange="reversed", showticklabels=False, showgrid=False),
        "barmode": "overlay",
        "bargap": 0.15,
        "updatemenus": [
            _menu(
                _button("on the run's clock", on_run_clock, _RUN_CLOCK),
                _button("each from its own start", on_own_clock, "seconds from when the request was due"),
            )
        ],
    }
    height_px = 260 + min(720, 10 * len(rows))
    return Section(
        heading=heading, text=(text,), plot=Plot(traces=on_run_clock, layout=layout, height_px=height_px)
    )


def _traces(rows: Sequence[Exchange], zeros_ns: Sequence[int]) -> tuple[Trace, ...]:
    """What is drawn of `rows`, the times of each of which count from its zero."""
    return (*_bars(rows, zeros_ns), *_failures(rows, zeros_ns))


def _bars(rows: Sequence[Exchange], zeros_ns: Sequence[int]) -> Iterator[Trace]:
    cut = [
        (number, zero_ns, exchange, part)
        for number, (exchange, zero_ns) in enumerate(zip(rows, zeros_ns, strict=True), 1)
        for part in parts(exchange)
    ]
    for name, (told, colour) in _PARTS.items():
        of = [each for each in cut if each[-1].name == name]
        if of:
            yield {
                "type": "bar",
                "orientation": "h",
                "name": told,
                "y": [number for number, _, _, _ in of],
                "base": [_seconds(part.from_ns - zero_ns) for _, zero_ns, _, part in of],
                "x": [_seconds(part.to_ns - part.from_ns) for _, _, _, part in of],
                "text": [_about(exchange, part) for _, _, exchange, part in of],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"color": colour, "line": {"width": 0}},
            }


def _failures(rows: Sequence[Exchange], zeros_ns: Sequence[int]) -> Iterator[Trace]:
    failed = [
        (number, exchange.stamps.ended_ns - zero_ns, failure)
        for number, (exchange, zero_ns) in enumerate(zip(rows, zeros_ns, strict=True), 1)
        if (failure := exchange.answer.failure) is not None
    ]
    if failed:
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": "failed",
            "y": [number for number, _, _ in failed],
            "x": [_seconds(ended_ns) for _, ended_ns, _ in failed],
            "text": [plain(f"{failure.label}: {failure.message[:MOST_MESSAGE]}") for _, _, failure in failed],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": RED, "symbol": "x", "size": 7},
        }


def _menu(*buttons: Mapping[str, object]) -> dict[str, object]:
    """Below the plot: its legend is above. Colours that are legible by day and by night."""
    return {
        "type": "buttons",
        "direction": "right",
        "showactive": True,
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
        "pad": {"t": 68},
        "bgcolor": "#dfe3e8",
        "font": {"color": "#2b313a"},
        "buttons": buttons,
    }


def _button(label: str, traces: Sequence[Trace], x_title: str) -> dict[str, object]:
    """Moves what is drawn to where `traces` have it."""
    moved = {"base": [trace.get("base") for trace in traces], "x": [trace["x"] for trace in traces]}
    return {"label": label, "method": "update", "args": [moved, {"xaxis.title.text": x_title}]}


def _about(exchange: Exchange, part: Part) -> str:
    told, _ = _PARTS[part.name]
    took_ms = (part.to_ns - part.from_ns) / NS_PER_MS
    label = f", {exchange.label}" if exchange.label else ""
    return plain(
        f"conversation {exchange.conversation}, turn {exchange.turn}{label}: {told} {took_ms:,.4g} ms"
    )


def _seconds(duration_ns: int) -> float:
    return round(duration_ns / NS_PER_S, 4)
