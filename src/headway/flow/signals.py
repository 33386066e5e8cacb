"""What a caller's behaviour tells of him: six signals, each with how fast it is forgotten and how much it weighs.

A level counts events and is halved every `half_life_s`. A contribution to the risk is level × weight, at most 2, the
whole scale: so whatever somebody did, he is back at his full rate about eight half-lives later. The project's row S3
names history, device fingerprint and geography; what counts how much is ours, and configurable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

import msgspec

SignalKind = Literal["failed_auth", "malformed", "abandoned", "burst", "new_fingerprint", "new_region"]
SIGNALS: Final[tuple[SignalKind, ...]] = get_args(SignalKind)
"""In the order in which levels are stored."""

Observation = Literal["failed_auth", "malformed", "abandoned", "finished", "fingerprint", "region"]
"""What the gateway sees and tells. Bursts are seen here, when requests arrive."""


class Signal(msgspec.Struct, frozen=True):
    """One observation. `value`: which fingerprint or region; "" for all others, and where it is not known."""

    kind: Observation
    value: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """How a signal counts: `words` complete "slowed for ...", by how many that were."""

    half_life_s: float
    weight: float
    words: str


RULES: Final[Mapping[SignalKind, Rule]] = {
    # Ten within some minutes are no typing error.
    "failed_auth": Rule(300, 0.2, "failed authentications"),
    # A scan sends hundreds; a client with a bug sends one kind, and is helped by being told, not by being slowed.
    "malformed": Rule(120, 0.05, "malformed requests"),
    # Editors abandon most completions: one a second settles at 0.43, which slows to 87 a second who asks for one.
    "abandoned": Rule(60, 0.005, "abandoned answers"),
    "burst": Rule(60, 0.005, "requests in bursts beyond what is usual for the user"),
    "new_fingerprint": Rule(600, 0.1, "clients never seen before"),
    "new_region": Rule(1800, 0.5, "regions never seen before"),
}

RECENT_HALF_LIFE_S: Final = 5.0
USUAL_HALF_LIFE_S: Final = 300.0
LN2: Final = 0.6931471805599453
BURST_FACTOR: Final = 4.0
BURST_MIN_PER_S: Final = 10.0
"""Below that nothing is a burst: an editor may send this when a file is opened."""
MAX_KNOWN: Final = 8
"""Fingerprints and regions remembered of a user; the one unused for longest is forgotten first."""


def decayed(level: float, elapsed_s: float, half_life_s: float) -> float:
    """Return what is left of a level."""
    return float(level * 2.0 ** (-elapsed_s / half_life_s))


def burst(recent: float, usual: float) -> float:
    """Return 1 for a request within a burst, else 0. Both count requests, decayed by the two half-lives above.

    A counter with half-life h settles at rate × h / ln 2, which gives the rate back.
    """
    recent_per_s = recent * LN2 / RECENT_HALF_LIFE_S
    usual_per_s = usual * LN2 / USUAL_HALF_LIFE_S
    return 1.0 if recent_per_s > max(BURST_MIN_PER_S, BURST_FACTOR * usual_per_s) else 0.0


def abandoned(level: float, observed: Observation) -> float:
    """Return the level after a stream ended: one that was read to its end makes up for one that was not."""
    return level + 1 if observed == "abandoned" else max(0.0, level - 1)


def novelty(known: tuple[str, ...], value: str) -> float:
    """Return 1 for something never seen of a user of whom others were seen, else 0: the first is no news."""
    return 1.0 if known and value not in known else 0.0


def remembered(known: tuple[str, ...], value: str) -> tuple[str, ...]:
    """Return what is known afterwards, the latest last."""
    return (*(name for name in known if name != value), value)[-MAX_KNOWN:]
