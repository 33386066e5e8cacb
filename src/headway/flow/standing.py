"""A user's standing: the levels of his signals, the risk that they add up to, and why, in words.

Values and functions from a value to the next: `decide.lua` computes the same, operation by operation, so that a user
of several gateways has one standing.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from headway.core.clock import NS_PER_S
from headway.flow.rate import MAX_RISK
from headway.flow.signals import (
    RECENT_HALF_LIFE_S,
    RULES,
    SIGNALS,
    USUAL_HALF_LIFE_S,
    Signal,
    SignalKind,
    abandoned,
    burst,
    decayed,
    novelty,
    remembered,
)

Weights = tuple[float, ...]
"""By SIGNALS."""
NIL = 0.01
"""A level below that is none."""
FEW_RECENT, FEW_USUAL = 10.0, 100.0
"""Requests; a burst takes 73 recent ones, and it takes 1,080 for what is usual to make a difference to that."""
_NO_LEVELS = (0.0,) * len(SIGNALS)
_INDEX: dict[SignalKind, int] = {name: index for index, name in enumerate(SIGNALS)}


class Standing(msgspec.Struct, frozen=True):
    """What is known of a user at `at_ns`.

    levels        by SIGNALS
    recent,usual  requests, decayed fast and slowly
    fingerprints, regions   digests of those seen, the latest last
    """

    at_ns: int
    levels: tuple[float, ...] = _NO_LEVELS
    recent: float = 0.0
    usual: float = 0.0
    fingerprints: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    @property
    def is_fresh(self) -> bool:
        """Whether it decides like that of somebody never seen, but for the clients and regions known."""
        return self.levels == _NO_LEVELS and self.recent < FEW_RECENT and self.usual < FEW_USUAL


def weights_of(chosen: Mapping[SignalKind, float]) -> Weights:
    """Return each signal's weight: the one chosen, else the table's."""
    return tuple(chosen.get(name, RULES[name].weight) for name in SIGNALS)


def at(standing: Standing, now_ns: int) -> Standing:
    """Return it as it stands at `now_ns`; time that goes back counts as none."""
    elapsed_s = max(0, now_ns - standing.at_ns) / NS_PER_S
    levels = standing.levels
    if levels != _NO_LEVELS:
        levels = tuple(
            _nil(decayed(level, elapsed_s, RULES[name].half_life_s)) if level else 0.0
            for name, level in zip(SIGNALS, levels, strict=True)
        )
    recent, usual = standing.recent, standing.usual
    return Standing(
        max(now_ns, standing.at_ns),
        levels,
        _nil(decayed(recent, elapsed_s, RECENT_HALF_LIFE_S)) if recent else 0.0,
        _nil(decayed(usual, elapsed_s, USUAL_HALF_LIFE_S)) if usual else 0.0,
        standing.fingerprints,
        standing.regions,
    )


def arrived(standing: Standing, weights: Weights, now_ns: int) -> Standing:
    """A request came, whether or not it will be taken."""
    now = at(standing, now_ns)
    recent, usual, levels = now.recent + 1, now.usual + 1, now.levels
    if burst(recent, usual):
        levels = _with(levels, "burst", levels[_INDEX["burst"]] + 1, weights)
    return Standing(now.at_ns, levels, recent, usual, now.fingerprints, now.regions)


def noted(standing: Standing, signal: Signal, weights: Weights, now_ns: int) -> Standing:
    """Something was observed of the user."""
    now = at(standing, now_ns)
    levels, fingerprints, regions = now.levels, now.fingerprints, now.regions
    match signal.kind:
        case "failed_auth" | "malformed":
            levels = _with(levels, signal.kind, levels[_INDEX[signal.kind]] + 1, weights)
        case "abandoned" | "finished":
            level = abandoned(levels[_INDEX["abandoned"]], signal.kind)
            levels = _with(levels, "abandoned", level, weights)
        case "fingerprint" | "region" if not signal.value:
            pass
        case "fingerprint":
            value = digest(signal.value)
            level = levels[_INDEX["new_fingerprint"]] + novelty(fingerprints, value)
            levels = _with(levels, "new_fingerprint", level, weights)
            fingerprints = remembered(fingerprints, value)
        case "region":
            value = digest(signal.value)
            level = levels[_INDEX["new_region"]] + novelty(regions, value)
            levels = _with(levels, "new_region", level, weights)
            regions = remembered(regions, value)
    return Standing(now.at_ns, levels, now.recent, now.usual, fingerprints, regions)


def risk(standing: Standing, weights: Weights) -> float:
    """Return the risk, 0 to MAX_RISK."""
    total = 0.0
    for level, weight in zip(standing.levels, weights, strict=True):
        total = total + level * weight
    return min(MAX_RISK, total)


class Contribution(msgspec.Struct, frozen=True):
    """What one signal adds: `share` of the risk, from `level` events, in `words`."""

    signal: SignalKind
    level: float
    share: float
    words: str


def why(standing: Standing, weights: Weights) -> Sequence[Contribution]:
    """Return what the risk is made of, the largest first."""
    found = [
        Contribution(name, level, level * weight, f"{RULES[name].words}: {level:.1f} of late")
        for name, level, weight in zip(SIGNALS, standing.levels, weights, strict=True)
        if level * weight
    ]
    return sorted(found, key=lambda contribution: -contribution.share)


def digest(value: str) -> str:
    """Return a short name of a fingerprint or region: what is told apart need not be kept."""
    return hashlib.blake2b(value.encode(), digest_size=8).hexdigest()


def _with(levels: tuple[float, ...], name: SignalKind, level: float, weights: Weights) -> tuple[float, ...]:
    index = _INDEX[name]
    weight = weights[index]
    level = min(level, MAX_RISK / weight) if weight else 0.0
    return (*levels[:index], _nil(level), *levels[index + 1 :])


def _nil(level: float) -> float:
    return level if level >= NIL else 0.0
