"""What a results file's conversations come to, way by way: sums, medians, facts kept. It measures nothing."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LATE = 3
"""From the fourth turn on (from 0) ways differ: before, all of them send everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one way. Tokens are means of a call; `late_*` are those of the fourth and fifth turn, TTFT their median and p95.

    summary_computed   tokens computed for summaries, a mean of a conversation; `summary_ms` the median of one, None without
    facts_kept         of `facts_needed`, over all turns
    """

    sent: float
    computed: float
    late_sent: float
    late_computed: float
    late_ttft_ms: float
    late_ttft_p95_ms: float
    first_ttft_ms: float
    summary_computed: float
    summary_ms: float | None
    facts_kept: int
    facts_needed: int


def figures(conversations: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the figures of one way; there is at least one conversation."""
    turns = [turn for one in conversations for turn in one["turns"]]
    late = [turn for one in conversations for turn in one["turns"][LATE:]]
    early = [turn for one in conversations for turn in one["turns"][:LATE]]
    made = [summary for one in conversations for summary in one["summaries"]]
    waits = sorted(turn["ttft_ms"] for turn in late)
    needed = sum(turn["needed"] for turn in turns)
    return Figures(
        sent=_mean(turns, lambda turn: turn["sent"]),
        computed=_mean(turns, _computed),
        late_sent=_mean(late, lambda turn: turn["sent"]),
        late_computed=_mean(late, _computed),
        late_ttft_ms=statistics.median(waits),
        late_ttft_p95_ms=waits[min(len(waits) - 1, int(0.95 * len(waits)))],
        first_ttft_ms=statistics.median(turn["ttft_ms"] for turn in early),
        summary_computed=sum(map(_computed, made)) / len(conversations),
        summary_ms=statistics.median(one["ms"] for one in made) if made else None,
        facts_kept=needed - sum(len(turn["lost"]) for turn in turns),
        facts_needed=needed,
    )


def _computed(usage: Mapping[str, Any]) -> int:
    return int(usage["sent"]) - int(usage["cached"])


def _mean(turns: Iterable[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], int]) -> float:
    return statistics.mean(map(value, turns))
