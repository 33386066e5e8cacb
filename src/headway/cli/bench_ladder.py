"""What `headway bench --arrival ladder` prints of the steps it took. It measures nothing."""

from collections.abc import Iterator

from headway.cli.table import aligned
from headway.lab.figures import rounded
from headway.lab.ladder_run import LadderRun, LadderStep


def as_json(ladder: LadderRun) -> dict[str, object]:
    """Return a ladder as JSON's types: `rate` null is that none was found."""
    finding = ladder.finding
    kept = None if finding is None else finding.kept
    return {
        "sentence": ladder.sentence(),
        "verdict": "unfinished" if finding is None else finding.verdict.value,
        "rate": None if kept is None else kept.rate,
        "broken_rate": None if finding is None else finding.broken_rate,
        "limit_ms": ladder.limit_ms,
        "steps": [_step_json(step) for step in ladder.steps],
    }


def _step_json(step: LadderStep) -> dict[str, object]:
    found = step.measured
    return {
        "rate": found.rate,
        "p95_ms": rounded(found.p95_ms),
        "ci95": [rounded(found.p95_low_ms), rounded(found.p95_high_ms)],
        "slo_kept": found.slo_kept,
        "requests": len(step.exchanges) + step.num_cut,
        "cut": step.num_cut,
        "client_late": step.client_late,
        "lag_p99_ms": rounded(step.lag_p99_ns / 1e6),
    }


def as_lines(ladder: LadderRun) -> Iterator[str]:
    """Yield what a terminal shows, the finding first."""
    yield ladder.sentence()
    yield ""
    rows = [("step", "rate/s", "P95 of TTFT, ms (95 % interval)", "requests", "")]
    for number, step in enumerate(ladder.steps, 1):
        found = step.measured
        rows.append(
            (
                f"{number}",
                f"{found.rate:.4g}",
                f"{found.p95_ms:.4g} ({found.p95_low_ms:.4g} to {found.p95_high_ms:.4g})",
                f"{len(step.exchanges) + step.num_cut}",
                _remark(step, ladder.limit_ms),
            )
        )
    yield from aligned(rows, ">>>><")


def introduction(ladder: LadderRun) -> str:
    """Return which requests the figures below are of."""
    num_cut = sum(step.num_cut for step in ladder.reported)
    cut = (
        f" ({num_cut:,} more were still running when it was decided, and are in none of these figures)"
        if num_cut
        else ""
    )
    return f"At that rate{cut}:" if ladder.finding and ladder.finding.kept else f"In the last step{cut}:"


def _remark(step: LadderStep, limit_ms: float) -> str:
    found = step.measured
    if step.client_late:
        return "not counted: the client was late itself"
    if found.p95_ms > limit_ms:
        return "too slow, stopped early" if step.stopped else "too slow"
    if not found.slo_kept:
        return "another limit of the SLO is broken"
    return "kept" if found.p95_high_ms <= limit_ms else "not beyond doubt"
