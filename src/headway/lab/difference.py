"""How two recorded runs differ, figure by figure, and what can be said of it. Pure functions over estimates.

Where both runs' records are at hand, a figure's difference is drawn: a draw of the one against a draw of the other. Else the
two intervals are combined by the squares of their halves (MOVER: Zou and Donner 2008), which for shares is Newcombe's
interval of 1998. Both take the runs as independent, and neither knows what the machine did in between.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headway.lab import comparison
from headway.lab.distribution import Interval, ends
from headway.lab.estimates import KINDS, Estimate, Kind

Judgement = Literal["better", "worse", "equal", "unknown"]

CAVEAT = (
    "One run stands against one: a difference may as well come from what the machine did between them, which no interval "
    "here covers. `headway bench compare` has both take turns, and can tell."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure of two runs. None: a run does not have it, or no interval can be told."""

    kind: Kind
    a: float | None
    b: float | None
    difference: float | None
    """b − a, in the figure's unit."""
    interval: Interval | None
    ratio: float | None
    """b ÷ a, of figures that are no shares."""
    ratio_interval: Interval | None
    judgement: Judgement
    """Of the second run: `equal` means that no difference of the least effect is left possible; `unknown` that one is."""


def differences(
    a: Mapping[str, Estimate], b: Mapping[str, Estimate], *, least_effect: float
) -> tuple[Difference, ...]:
    """Compare every figure that one of the runs has. `least_effect`: the smallest ratio or share that matters, 0.05 for 5 %.

    Raises ValueError for a least effect outside (0, 1).
    """
    if not 0 < least_effect < 1:
        raise ValueError(f"a least effect of {least_effect}; it lies between 0 and 1")
    return tuple(
        _difference(kind, a.get(kind.key), b.get(kind.key), least_effect)
        for kind in KINDS
        if kind.key in a or kind.key in b
    )


def verdict(found: Sequence[Difference], *, least_effect: float, names: tuple[str, str]) -> str:
    """Return what can be said, in a sentence."""
    first, second = names
    said = []
    for judgement, words in (("worse", "worse than {} in"), ("better", "better than {} in")):
        figures = [_with_change(each) for each in found if each.judgement == judgement]
        if figures:
            said.append(f"{words.format(first)} {listed(figures)}")
    equal = [each.kind.name for each in found if each.judgement == "equal"]
    if equal:
        said.append(f"equal to {first} to within {100 * least_effect:.3g}% in {listed(equal)}")
    if not said:
        return f"It cannot be told whether {second} differs from {first} by {100 * least_effect:.3g}% in any figure."
    rest = "; of the rest it cannot be told" if any(each.judgement == "unknown" for each in found) else ""
    return f"{second} is {', '.join(said)}{rest}."


def _difference(kind: Kind, a: Estimate | None, b: Estimate | None, least_effect: float) -> Difference:
    if a is None or b is None:
        return Difference(
            kind=kind,
            a=None if a is None else a.value,
            b=None if b is None else b.value,
            difference=None,
            interval=None,
            ratio=None,
            ratio_interval=None,
            judgement="unknown",
        )
    interval = _interval(a, b)
    has_ratio = kind.unit != "share" and a.value > 0 and b.value > 0
    ratio_interval = _ratio_interval(a, b) if has_ratio else None
    return Difference(
        kind=kind,
        a=a.value,
        b=b.value,
        difference=b.value - a.value,
        interval=interval,
        ratio=b.value / a.value if has_ratio else None,
        ratio_interval=ratio_interval,
        judgement=_judge(kind, interval, ratio_interval, least_effect),
    )


def _interval(a: Estimate, b: Estimate) -> Interval | None:
    """Of b − a."""
    if a.draws is not None and b.draws is not None:
        return ends(b.draws - a.draws)
    if a.interval is None or b.interval is None:
        return None
    difference = b.value - a.value
    lower = math.hypot(b.value - b.interval[0], a.interval[1] - a.value)
    upper = math.hypot(b.interval[1] - b.value, a.value - a.interval[0])
    return difference - lower, difference + upper


def _ratio_interval(a: Estimate, b: Estimate) -> Interval | None:
    """Of b ÷ a: of the difference of logarithms."""
    logarithms = [_logarithm(a), _logarithm(b)]
    if any(each is None for each in logarithms):
        return None
    found = _interval(*(each for each in logarithms if each is not None))
    return None if found is None else (math.exp(found[0]), math.exp(found[1]))


def _logarithm(of: Estimate) -> Estimate | None:
    if of.interval is None or of.interval[0] <= 0 or (of.draws is not None and of.draws.min() <= 0):
        return None
    return Estimate(
        value=math.log(of.value),
        interval=(math.log(of.interval[0]), math.log(of.interval[1])),
        draws=None if of.draws is None else np.log(of.draws),
    )


def _judge(
    kind: Kind, interval: Interval | None, ratio_interval: Interval | None, least_effect: float
) -> Judgement:
    change: comparison.Judgement | None
    if kind.unit == "share":
        change = None if interval is None else _judge_share(interval, least_effect)
    else:
        change = None if ratio_interval is None else comparison.judge(ratio_interval, least_effect)
    if change == "equal":
        return "equal"
    if change in ("faster", "slower"):
        return "better" if (change == "faster") != kind.more_is_better else "worse"
    return "unknown"


def _judge_share(interval: Interval, least_effect: float) -> comparison.Judgement:
    """As `comparison.judge`, of a difference instead of a ratio: what is less is called faster."""
    low, high = interval
    if -least_effect < low and high < least_effect:
        return "equal"
    return "faster" if high <= 0 else "slower" if low >= 0 else "unknown"


def _with_change(found: Difference) -> str:
    if found.ratio is not None:
        return f"{found.kind.name} ({found.ratio - 1:+.1%})"
    assert found.difference is not None
    return f"{found.kind.name} ({100 * found.difference:+.1f} points)"


def listed(names: Sequence[str]) -> str:
    """Return at least one name as a sentence lists them."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
