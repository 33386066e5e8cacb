"""The script of `decide.lua`, and what goes to it and comes back. It knows no connection.

All keys of one decision carry one hash tag, so that a cluster keeps them together; names of tenants and users do not
get there, only a digest.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.core.caller import Caller
from headway.core.clock import NS_PER_S
from headway.core.quota import Quotas
from headway.flow.budget import SECONDS_PER_MIN
from headway.flow.rate import MAX_RISK, MIN_BURST, RISK_FACTOR, Bucket
from headway.flow.signals import (
    BURST_FACTOR,
    BURST_MIN_PER_S,
    LN2,
    MAX_KNOWN,
    RECENT_HALF_LIFE_S,
    RULES,
    SIGNALS,
    USUAL_HALF_LIFE_S,
)
from headway.flow.standing import NIL, Weights
from headway.flow.terms import Terms

PREFIX = "headway:flow"
LEASE_S = 60
"""A place that its gateway does not renew is free after that: gateways die."""
HOLD_S = 3600
"""A reservation that nobody settles lapses after that; longer calls get no refund."""
AHEAD_US = 1_000_000
"""By so much the server's clock may be set back without notice; NTP steps it by more, and slews it by less."""
FORGET_S = 14_400
"""What is known of a user who stays away: eight times the longest half-life, when little is left of anything."""


def script(weights: Weights) -> str:
    """Return the Lua source, which begins with the rules that it decides by."""
    source = (Path(__file__).parent / "decide.lua").read_text("utf-8")
    return f"local rules = cjson.decode([[{_rules_json(weights)}]])\n{source}"


def script_sha(source: str) -> str:
    """Return the name under which Redis keeps a script."""
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


def _rules_json(weights: Weights) -> str:
    """Return the constants of the decisions."""
    return json.dumps(
        {
            "weights": weights,
            "half_lives": [RULES[name].half_life_s for name in SIGNALS],
            "signals": {name: index for index, name in enumerate(SIGNALS, start=1)},
            "recent_half_life_s": RECENT_HALF_LIFE_S,
            "usual_half_life_s": USUAL_HALF_LIFE_S,
            "ln2": LN2,
            "burst_factor": BURST_FACTOR,
            "burst_min_per_s": BURST_MIN_PER_S,
            "max_known": MAX_KNOWN,
            "max_risk": MAX_RISK,
            "risk_factor": RISK_FACTOR,
            "min_burst": MIN_BURST,
            "nil_level": NIL,
            "lease_s": LEASE_S,
            "hold_s": HOLD_S,
            "ahead_us": AHEAD_US,
            "forget_s": FORGET_S,
        }
    )


def keys(caller: Caller) -> list[str]:
    """Return the keys of a caller's account."""
    # Of the lengths too, so that no names run into others.
    who = "".join(f"{len(part)}:{part}" for part in caller.account).encode()
    tag = f"{PREFIX}:{{{hashlib.blake2b(who, digest_size=16).hexdigest()}}}"
    return [f"{tag}:account", f"{tag}:calls", f"{tag}:held"]


def arguments(terms: Terms) -> list[str]:
    """Return a caller's limits as the script reads them."""
    return [
        repr(terms.base),
        repr(terms.floor),
        repr(terms.burst_s),
        "" if terms.tokens_per_min is None else str(terms.tokens_per_min),
        str(terms.whole_tokens_per_min),
        "" if terms.max_concurrent is None else str(terms.max_concurrent),
    ]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the script said. `levels`: of the signals, where it told them."""

    verdict: str
    requests: Bucket
    tokens: Bucket | None
    num_calls: int
    levels: tuple[float, ...]

    @property
    def quotas(self) -> Quotas:
        """What the caller has left."""
        return Quotas(self.requests.quota(), None if self.tokens is None else self.tokens.quota())


def read_answer(reply: Sequence[str | int], terms: Terms) -> Answer:
    """Return what a reply of admit, reserve or show says."""
    verdict, level, rate, burst, tokens, num_calls, levels = map(str, reply)
    budget = None
    if terms.tokens_per_min is not None:
        per_min = float(terms.tokens_per_min)
        budget = Bucket(float(tokens), 0, per_min / SECONDS_PER_MIN, per_min)
    return Answer(
        verdict=verdict,
        requests=Bucket(float(level), 0, float(rate), float(burst)),
        tokens=budget,
        num_calls=int(num_calls),
        levels=tuple(map(float, levels.split())),
    )


def time_us(now_ns: int) -> int:
    """Return a time as the script takes it."""
    return now_ns // (NS_PER_S // 1_000_000)
