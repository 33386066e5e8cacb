"""Who sends what: 100 normal users, 5 of class high, and beside them a burst or a scan."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from headway.core.caller import Caller
from headway.core.clock import NS_PER_S

Kind = Literal["call", "malformed", "unauthorised"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: `group` is what it is counted under."""

    at_ns: int
    group: str
    caller: Caller
    kind: Kind = "call"


def _poisson(rate: float, seconds: float, draw: random.Random, start_s: float = 0.0) -> Iterator[int]:
    at_s = start_s
    while (at_s := at_s + draw.expovariate(rate)) < start_s + seconds:
        yield int(at_s * NS_PER_S)


def everybody(seconds: int, draw: random.Random) -> Iterator[Arrival]:
    """100 users with a request every three seconds or so, and 5 of class high with one a second; a tenant each."""
    for number in range(100):
        caller = Caller(tenant=f"normal {number}", user="u")
        for at_ns in _poisson(0.3, seconds, draw):
            yield Arrival(at_ns, "normal", caller)
    for number in range(5):
        caller = Caller(tenant=f"vip {number}", user="u", service_class="high")
        for at_ns in _poisson(1.0, seconds, draw):
            yield Arrival(at_ns, "high", caller)


def burst(seconds: int, draw: random.Random) -> Iterator[Arrival]:
    """One user, 600 requests within two seconds, every ten."""
    caller = Caller(tenant="flood", user="u")
    for start_s in range(5, seconds, 10):
        for at_ns in _poisson(300, 2, draw, start_s):
            yield Arrival(at_ns, "flood", caller)


def scan(seconds: int, draw: random.Random) -> Iterator[Arrival]:
    """One source that tries what the gateway takes: 500 requests a second, three of ten without a valid token."""
    caller = Caller(tenant="", user="@203.0.113.7")
    for at_ns in _poisson(500, seconds, draw):
        yield Arrival(at_ns, "scanner", caller, "unauthorised" if draw.random() < 0.3 else "malformed")


LOADS: dict[str, Callable[[int, random.Random], Iterator[Arrival]] | None] = {
    "nothing else": None,
    "a burst": burst,
    "a scan": scan,
}


def arrivals(load: str, seconds: int, seed: int) -> list[Arrival]:
    """Return a load's requests by time."""
    found = [*everybody(seconds, random.Random(seed))]
    if (more := LOADS[load]) is not None:
        found += more(seconds, random.Random(seed + 1))
    return sorted(found, key=lambda arrival: arrival.at_ns)
