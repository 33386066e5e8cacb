"""The adaptive ladder (L5): which rate to offer next, and in the end the highest rate that keeps the SLO.

    CLIMB    L5's rule: P95 above `high_ms` cuts the rate, below `low_ms` raises it, between holds it
    FALL     something broke: cut until a rate keeps the SLO
    BISECT   between the highest rate that keeps it and the lowest that does not
    CONFIRM  repeat the edge: the search picks lucky measurements, repeats are not picked

            ┌ broken ───────────────> FALL ── at the floor ──> BELOW_FLOOR
    CLIMB ──┤                           └──── kept ───> BISECT ── narrow enough ─┐
            ├ held, not kept, but a lower rate was ───> BISECT                   v
            └ the target is kept ─────────────────────────────────────────> CONFIRM ──> FOUND | ABOVE_TARGET
                                                                  not kept: a lower rate again, at the floor BELOW_FLOOR

No phase is entered twice and each can only end (`max_steps`), so noise cannot make it oscillate, as L5's rule alone does
around every knee. It is pure: a measurement goes in, a frozen value comes out; it knows no server, clock or seed.
"""

import enum
from dataclasses import dataclass, replace

from headway.lab.ladder_rules import LadderRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One step: the rate offered, the P95 with its confidence interval, and whether every other limit was kept.

    Infinity where nothing better is known: too few requests for an upper end, failures counted as endless.
    """

    rate: float
    p95_ms: float
    p95_low_ms: float
    p95_high_ms: float
    slo_kept: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.p95_low_ms <= self.p95_ms <= self.p95_high_ms:
            raise ValueError(
                f"the P95 {self.p95_ms} lies outside its interval {self.p95_low_ms} to {self.p95_high_ms}"
            )


class Verdict(enum.Enum):
    """Where the knee lies."""

    FOUND = "found"
    ABOVE_TARGET = "above_target"
    BELOW_FLOOR = "below_floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The end: `kept` is the last measurement of the highest rate whose interval keeps the SLO.

    `broken_rate` is the lowest rate above it that did not keep it. None: no rate kept it, or none broke it.
    """

    verdict: Verdict
    kept: Measured | None
    broken_rate: float | None
    num_steps: int

    def sentence(self) -> str:
        """Return what a person is told."""
        match self.verdict, self.kept:
            case Verdict.FOUND, Measured() as kept:
                return f"The highest rate that keeps the SLO is {_rate_and_p95(kept)}; {self.broken_rate:.4g}/s does not."
            case Verdict.ABOVE_TARGET, Measured() as kept:
                return f"The SLO is kept up to the target, {_rate_and_p95(kept)}; to find the knee, raise target_rate."
            case _:
                return (
                    f"No rate was shown to keep the SLO, not even the floor of {self.broken_rate:.4g}/s; lower "
                    "floor_rate, loosen the SLO, or measure longer if the P95's interval is wide."
                )


def _rate_and_p95(step: Measured) -> str:
    return f"{step.rate:.4g}/s (P95 {step.p95_ms:.4g} ms, {step.p95_low_ms:.4g} to {step.p95_high_ms:.4g})"


class Phase(enum.Enum):
    """What the search is doing; see the module."""

    CLIMB = enum.auto()
    FALL = enum.auto()
    BISECT = enum.auto()
    CONFIRM = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The ladder before a step: measure at `rate` and give the result to `advance`.

    `kept_rate` < `broken_rate` are the ends of the bracket, None while unknown. `holds_left` and `proofs_left` count
    the further measurements of this very rate, `retreats` how often the edge was not confirmed.
    """

    rules: LadderRules
    rate: float
    holds_left: int
    phase: Phase = Phase.CLIMB
    kept_rate: float | None = None
    broken_rate: float | None = None
    proofs_left: int = 0
    retreats: int = 0
    num_steps: int = 0


def begin(rules: LadderRules) -> Search:
    """Return the ladder at its start."""
    return Search(rules=rules, rate=rules.start_rate, holds_left=rules.holds)


def advance(search: Search, measured: Measured) -> Search | Finding:
    """Return the next step, or what was found; raises ValueError if another rate was measured than asked for."""
    if measured.rate != search.rate:
        raise ValueError(f"{search.rate}/s was to be measured, got {measured.rate}/s")
    search = replace(search, num_steps=search.num_steps + 1)
    kept = measured.slo_kept and measured.p95_high_ms <= search.rules.high_ms
    match search.phase:
        case Phase.CLIMB:
            return _climb(search, measured, kept)
        case Phase.FALL:
            if kept:
                return _bisect(replace(search, kept_rate=max(search.kept_rate or 0.0, search.rate)))
            return _fall(search) if _breaks(search, measured) or not search.holds_left else _hold(search)
        case Phase.BISECT if kept:
            return _bisect(replace(search, kept_rate=search.rate))
        case Phase.BISECT:
            return _bisect(replace(search, broken_rate=search.rate))
        case Phase.CONFIRM:
            return _confirm(search, measured) if kept else _retreat(search)


def _breaks(search: Search, measured: Measured) -> bool:
    """Whether the measurement itself is above the limit, not only its interval's upper end."""
    return not measured.slo_kept or measured.p95_ms > search.rules.high_ms


def _climb(search: Search, measured: Measured, kept: bool) -> Search | Finding:
    """L5's rule, and what follows a hold: up if the SLO was kept, else the knee is here or below."""
    rules = search.rules
    if _breaks(search, measured):
        return _fall(search)
    if kept:
        search = replace(search, kept_rate=search.rate)
        if search.rate == rules.target_rate:
            return replace(search, phase=Phase.CONFIRM, proofs_left=rules.repeats)
    if measured.p95_ms >= rules.low_ms or search.rate == rules.target_rate:
        if search.holds_left:
            return _hold(search)
        if not kept:
            bracketed = search.kept_rate is not None and search.kept_rate < search.rate
            return _bisect(replace(search, broken_rate=search.rate)) if bracketed else _fall(search)
    return _at(search, min(rules.target_rate, search.rate + rules.step_rate))


def _at(search: Search, rate: float) -> Search:
    return replace(search, rate=rate, holds_left=search.rules.holds)


def _hold(search: Search) -> Search:
    return replace(search, holds_left=search.holds_left - 1)


def _fall(search: Search) -> Search | Finding:
    """Cut the rate, which did not keep the SLO; what was kept at or above it was luck.

    The floor is measured again before it ends the ladder: often it is the first rate, on a server that is still cold.
    """
    rules = search.rules
    if search.rate <= rules.floor_rate:
        return _hold(search) if search.holds_left else _below_floor(search)
    kept_rate = search.kept_rate
    if kept_rate is not None and kept_rate >= search.rate:
        kept_rate = None
    fallen = replace(search, phase=Phase.FALL, kept_rate=kept_rate, broken_rate=search.rate)
    return _at(fallen, max(rules.floor_rate, rules.cut * search.rate))


def _bisect(search: Search) -> Search:
    """Halve the bracket, or repeat its lower end if it is narrow enough."""
    low, high = search.kept_rate, search.broken_rate
    assert low is not None, "a rate below was kept"
    assert high is not None, "a rate above was not kept"
    if high - low <= search.rules.resolution * high:
        return replace(search, phase=Phase.CONFIRM, rate=low, proofs_left=search.rules.repeats)
    return replace(search, phase=Phase.BISECT, rate=(low + high) / 2)


def _confirm(search: Search, measured: Measured) -> Search | Finding:
    if search.proofs_left > 1:
        return replace(search, proofs_left=search.proofs_left - 1)
    return Finding(
        verdict=Verdict.ABOVE_TARGET if search.broken_rate is None else Verdict.FOUND,
        kept=measured,
        broken_rate=search.broken_rate,
        num_steps=search.num_steps,
    )


def _retreat(search: Search) -> Search | Finding:
    """Try a rate lower by the resolution, then by twice that, and so on: the edge was luck, nobody knows how much."""
    rules = search.rules
    if search.rate <= rules.floor_rate:
        return _below_floor(search)
    factor = 1 - rules.resolution * 2**search.retreats
    return replace(
        search,
        rate=max(rules.floor_rate, factor * search.rate),
        broken_rate=search.rate,
        proofs_left=rules.repeats + 1,
        retreats=search.retreats + 1,
    )


def _below_floor(search: Search) -> Finding:
    return Finding(
        verdict=Verdict.BELOW_FLOOR,
        kept=None,
        broken_rate=search.rate,
        num_steps=search.num_steps,
    )
