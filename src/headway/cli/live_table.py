"""A run so far as a person reads it in a terminal of 40 columns or more: a snapshot becomes lines, nothing else happens."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from headway.core.clock import NS_PER_MS
from headway.lab.measurement import LAG_LIMIT_NS
from headway.lab.progress import SHOWN, WINDOW_S, Snapshot, Spread

_RECENT = f"  last {WINDOW_S} s"
_CELL = 8
"""Columns of a figure: `99,999.9` ms fits."""
_LEAST_BAR, _MOST_BAR = 10, 30
_MINUTE, _HOUR = 60, 3600
_LAG = "client's lag"


def render(snapshot: Snapshot, heading: str, width: int) -> Iterator[Text]:
    """Yield the table's lines, filled up to `width` columns; in a narrower terminal than 40 they have to be cut."""
    yield Text(heading, "bold")
    if not snapshot.has_begun:
        yield Text("preparing", "dim")
        return
    yield from _progress(snapshot, width)
    yield from _table(snapshot)
    yield from _failures(snapshot, width)


def _progress(snapshot: Snapshot, width: int) -> Iterator[Text]:
    whole, recent = snapshot.whole, snapshot.recent
    ended = f"{whole.num_ended:,}"
    if snapshot.num_planned is not None:
        ended += f" of {snapshot.num_planned:,}"
    facts = [f"{ended} requests", _time(whole.seconds)]
    if snapshot.share_done is not None:
        facts.append(f"{snapshot.share_done:.0%}")
    if snapshot.left_s is not None:
        facts.append(f"{_time(snapshot.left_s)} left")
    *before, last = _filled(facts, width)
    yield from map(Text, before)
    room = min(width - len(last) - 2, _MOST_BAR)
    if snapshot.share_done is not None and room >= _LEAST_BAR:
        done = round(room * snapshot.share_done)
        yield Text.assemble(f"{last}  ", ("━" * done, "green"), ("━" * (room - done), "dim"))
    else:
        yield Text(last)
    rates = [
        f"offered {_rate(snapshot.offered_s)}/s",
        f"answered {_rate(whole.answered_s)}/s, of late {_rate(recent.answered_s)}",
        f"in flight {snapshot.num_running:,}",
        f"{_rate(whole.output_tok_s)} tokens/s, of late {_rate(recent.output_tok_s)}",
    ]
    yield from map(Text, _filled(rates, width))


def _table(snapshot: Snapshot) -> Iterator[Text]:
    yield Text(_row("ms", list(SHOWN)), "dim")
    for name, whole, recent in (
        ("TTFT", snapshot.whole.ttft, snapshot.recent.ttft),
        ("ITL", snapshot.whole.itl, snapshot.recent.itl),
        (_LAG, snapshot.whole.lag, snapshot.recent.lag),
    ):
        is_late = name == _LAG and (whole.percentiles["p99"] or 0) * NS_PER_MS > LAG_LIMIT_NS
        yield Text(_row(name, _figures(whole)), "bold red" if is_late else "bold")
        yield Text(_row(_RECENT, _figures(recent)))


def _failures(snapshot: Snapshot, width: int) -> Iterator[Text]:
    if snapshot.failures:
        total = sum(snapshot.failures.values())
        kinds = [f"{label} {number:,}" for label, number in snapshot.failures.items()]
        for line in _filled([f"{total:,} failed", *kinds], width):
            yield Text(line, "red")


def _figures(spread: Spread) -> list[str]:
    return ["-" if value is None else _ms(value) for value in spread.percentiles.values()]


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<{len(_LAG)}}" + "".join(f" {cell:>{_CELL}}" for cell in cells)


def _ms(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(seconds: float) -> str:
    """Return minutes and seconds, with hours where there are any."""
    minutes, left = divmod(round(seconds), _MINUTE)
    hours, minutes = divmod(minutes, _HOUR // _MINUTE)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _filled(facts: Sequence[str], width: int) -> list[str]:
    """Put facts into as few lines as they fit into, each whole; one that is wider than a line has its own."""
    lines: list[str] = []
    for fact in facts:
        if lines and len(lines[-1]) + 3 + len(fact) <= width:
            lines[-1] += f" · {fact}"
        else:
            lines.append(fact)
    return lines
