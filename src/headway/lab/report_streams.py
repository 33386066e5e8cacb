"""What a report says of a run's streams: who was offered and got what, and how the server divided itself between them."""

from collections.abc import Iterator

from headway.core.clock import NS_PER_S
from headway.lab.by_stream import StreamPart
from headway.lab.figure_text import NOT_TOLD, number, percentile_text
from headway.lab.measurement import RunResult
from headway.lab.report_section import Section, Table
from headway.lab.sharing import WINDOW_NS

_HEAD = (
    "stream", "offered", "admitted", "answered", "TTFT p50 (95 % interval), ms", "p95", "ITL p50", "p99",
    "met the limits", "share of tokens",
)  # fmt: skip


def streams_section(result: RunResult) -> Section | None:
    """Return a row for each stream; None where the run has one load."""
    parts, shared = result.summary.by_stream, result.summary.between_streams
    if not parts:
        return None
    shares = {} if shared is None else shared.token_shares
    rows = tuple((name, *_cells(part), _share(shares.get(name))) for name, part in parts.items())
    return Section(heading="Streams", text=tuple(_text(result)), table=Table(head=_HEAD, rows=rows))


def _cells(found: StreamPart) -> Iterator[str]:
    ttft, good = found.part.ttft.successes, found.goodput
    yield f"{found.admission.num_offered:,}"
    yield f"{found.admission.num_admitted:,}"
    yield f"{found.admission.num_answered:,}"
    yield percentile_text(ttft, "p50")
    for value in (ttft.percentiles["p95"], found.itl.percentiles["p50"], found.itl.percentiles["p99"]):
        yield NOT_TOLD if value is None else number(value)
    yield _share(None if good is None else good.fraction)


def _text(result: RunResult) -> Iterator[str]:
    yield "These loads were offered at once. Admitted are requests that the server neither refused nor failed to take."
    found, seconds = result.summary.between_streams, WINDOW_NS // NS_PER_S
    if found is None:
        return
    if found.jain is None:
        yield f"They never all had work waiting for {seconds} seconds: nothing says how the server divides itself."
        return
    yield (
        f"Shares of tokens are of {found.num_windows} times {seconds} seconds in which all had work waiting. Jain's index "
        f"of service then was {found.jain:.3f}: 1 where all got the same, {1 / len(found.service_shares):.2g} where one "
        "got all."
    )


def _share(value: float | None) -> str:
    return NOT_TOLD if value is None else f"{value:.1%}"
