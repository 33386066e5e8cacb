"""What `headway bench` tells of a run's streams, and of refusals by their codes. It measures nothing."""

from collections.abc import Iterator

from headway.cli.bench_sections import NOT_TOLD, percentile, with_interval
from headway.cli.table import aligned
from headway.core.clock import NS_PER_S
from headway.lab.request_headers import shown
from headway.lab.run_options import RunOptions
from headway.lab.sharing import WINDOW_NS
from headway.lab.summary import Summary

_MOST_ROWS = 16


def asked_json(options: RunOptions) -> list[dict[str, object]]:
    """Return what each stream was asked to be, as JSON's types."""
    return [
        {
            "stream": stream.name,
            "workload": stream.options.workload,
            "arrival": stream.options.arrival or "closed:1",
            "requests": stream.options.num_requests,
            "duration_s": None
            if stream.options.duration_ns is None
            else stream.options.duration_ns / NS_PER_S,
            "max_output_tokens": stream.options.output_tokens,
            "lines": stream.options.lines,
            "seed": stream.options.seed,
            "skip": stream.options.num_skipped,
            "sessions": stream.options.session is not None,
            "headers": shown(stream.options.endpoint.headers),
        }
        for stream in options.streams
    ]


def refusals(summary: Summary, label: str) -> str:
    """Return the codes of the refusals that a label counts, as text; empty where servers gave none."""
    codes = {
        code: count
        for (status, code), count in summary.admission.refusals.items()
        if code and label == f"refused_{status}"
    }
    return f" ({', '.join(f'{count} {code}' for code, count in codes.items())})" if codes else ""


def streams(summary: Summary) -> Iterator[str]:
    """Tell each stream, and how the server divided itself between them."""
    parts = summary.by_stream
    if not parts:
        return
    rows = [
        (
            "stream",
            "offered",
            "admitted",
            "answered",
            "TTFT p50 (95 % interval), ms",
            "p95",
            "ITL p50",
            "p99",
            "goodput",
        )
    ]
    for name, found in list(parts.items())[:_MOST_ROWS]:
        ttft, good = found.part.ttft.successes, found.goodput
        rows.append(
            (
                name,
                f"{found.admission.num_offered:,}",
                f"{found.admission.num_admitted:,}",
                f"{found.admission.num_answered:,}",
                with_interval(ttft, "p50"),
                percentile(ttft, "p95"),
                percentile(found.itl, "p50"),
                percentile(found.itl, "p99"),
                NOT_TOLD if good is None or good.fraction is None else f"{good.fraction:.1%}",
            )
        )
    yield ""
    yield from aligned(rows, "<>>>>>>>>")
    if len(parts) > _MOST_ROWS:
        yield f"and {len(parts) - _MOST_ROWS} more, which --json shows"
    yield from _sharing(summary)


def _sharing(summary: Summary) -> Iterator[str]:
    found = summary.between_streams
    if found is None:
        return
    seconds = WINDOW_NS // NS_PER_S
    if found.jain is None:
        yield f"All streams were never backlogged together for {seconds} s: nothing says how the server divides itself"
        return
    shares = ", ".join(f"{name} {share:.1%}" for name, share in found.token_shares.items())
    yield (
        f"While all were backlogged ({seconds} s windows: {found.num_windows}): shares of tokens {shares}; "
        f"Jain's index of service {found.jain:.3f}"
    )
