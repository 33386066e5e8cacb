"""What the runs of a case say: medians, ratios, and which targets are met. Pure functions over what was recorded."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from peers.cases import BETTER, Case
from peers.places import HEADWAY


def rounds(sides: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    """Yield (round, side) such that the sides take turns: A B C, A B C, and so on."""
    for number in range(repeats):
        for side in sides:
            yield number, side


def medians(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Return each side's median of tokens a second."""
    return {side: statistics.median(run["tok_s"] for run in many) for side, many in runs.items() if many}


def comparisons(case: Case, median: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return one verdict for each target of the case whose two sides were measured."""
    peers = {side: value for side, value in median.items() if side != HEADWAY}
    verdicts = []
    for target in case.targets:
        against = max(peers, key=peers.__getitem__, default=None) if target.peer == BETTER else target.peer
        if HEADWAY not in median or against not in peers:
            continue
        ratio = median[HEADWAY] / peers[against]
        verdicts.append(
            {
                "target_of": target.peer,
                "against": against,
                "ratio": round(ratio, 3),
                "at_least": target.at_least,
                "aim": target.aim,
                "met": ratio >= target.at_least,
                "aim_met": ratio >= target.aim,
            }
        )
    return verdicts


def spread(values: Sequence[float]) -> float:
    """Return (largest - smallest) ÷ median: how much to believe the median."""
    return (max(values) - min(values)) / statistics.median(values)
