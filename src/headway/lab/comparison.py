"""Whether B is faster than A, from rounds in which both took turns. Pure functions over a figure of each round.

Requests of one run share the machine's mood, so that their number says little about how sure a difference is; rounds do. The
ratio of a round's two figures (median TTFT, say) is one sample, on a logarithmic scale, where twice as fast and twice as
slow lie equally far from one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headway.lab.distribution import mean_interval

LEAST_ROUNDS = 5
"""With fewer, Student's interval is wider than any difference worth finding."""

Judgement = Literal["faster", "slower", "equal", "unknown", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What rounds say of B relative to A; the figure is a time, or anything else of which less is better."""

    judgement: Judgement
    """Of B: `equal` means that no difference of the least effect or more is left possible; `unknown` that one is."""
    ratio: float | None
    """B's figure over A's, the geometric mean over rounds; None if one of them failed."""
    interval: tuple[float, float] | None
    """Of the ratio, at a confidence of 95 %."""
    num_rounds: int
    sentence: str


def compare(
    a: Sequence[float], b: Sequence[float], *, least_effect: float, names: tuple[str, str] = ("A", "B")
) -> Comparison:
    """Compare the figures of B with those of A, round by round.

    `least_effect` is the smallest difference that matters: 0.05 for 5 %. A figure is positive, or infinite for a round that
    failed. Raises ValueError otherwise, for fewer than `LEAST_ROUNDS` rounds, for unequal numbers of them, or a least effect
    outside (0, 1).
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} rounds of A, but {len(b)} of B")
    if len(a) < LEAST_ROUNDS:
        raise ValueError(f"{len(a)} rounds; at least {LEAST_ROUNDS} are needed")
    if not 0 < least_effect < 1:
        raise ValueError(f"a least effect of {least_effect}; it lies between 0 and 1")
    if not all(figure > 0 for figure in (*a, *b)):  # NaN is not either
        raise ValueError("a figure is not positive")
    failed = [(name, sum(map(math.isinf, figures))) for name, figures in zip(names, (a, b), strict=True)]
    if any(number for _, number in failed):
        said = " and ".join(f"{name} in {number}" for name, number in failed if number)
        return Comparison(
            judgement="failed",
            ratio=None,
            interval=None,
            num_rounds=len(a),
            sentence=f"Not comparable: {said} of {len(a)} rounds failed too often to have a figure.",
        )
    logarithms = np.log(np.asarray(b) / np.asarray(a))
    ends = mean_interval(logarithms)
    assert ends is not None  # of one round alone
    interval = math.exp(ends[0]), math.exp(ends[1])
    judgement = judge(interval, least_effect)
    ratio = math.exp(float(logarithms.mean()))
    return Comparison(
        judgement=judgement,
        ratio=ratio,
        interval=interval,
        num_rounds=len(a),
        sentence=_sentence(judgement, ratio, interval, least_effect, names),
    )


def judge(interval: tuple[float, float], least_effect: float) -> Judgement:
    """Say what an interval of a ratio of times leaves possible, of the side that is divided."""
    low, high = interval
    # In both directions by the same factor, so that exchanging A and B exchanges the judgements.
    smallest, largest = 1 / (1 + least_effect), 1 + least_effect
    if smallest < low and high < largest:
        return "equal"
    if high <= 1:
        return "faster"
    if low >= 1:
        return "slower"
    return "unknown"


def _sentence(
    judgement: Judgement,
    ratio: float,
    interval: tuple[float, float],
    least_effect: float,
    names: tuple[str, str],
) -> str:
    a, b = names
    low, high = interval
    times = f"{ratio:.3g} times {a}'s (95 % interval {low:.3g} to {high:.3g})"
    if judgement == "equal":
        return f"{b} is as fast as {a} to within {least_effect:.0%}: {times}."
    if judgement == "unknown":
        return f"It cannot be told which is faster: {b}'s figure is {times}."
    return f"{b} is {judgement} than {a}: its figure is {times}."
