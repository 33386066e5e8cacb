"""What a run and its client processes say to each other.

    -> Job                     <- Ready
    -> OpenShare | ClosedShare <- Ready, when everything is prepared
    -> Go                      <- Samples, again and again; at last Offered
    -> Stop, instead of Go or after it: the load ends, and what was over is told

What goes wrong is told as the HeadwayError it is, instead of an answer.
"""

from dataclasses import dataclass

from headway.lab.sample import Sample
from headway.lab.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is for: its share, `index` of `count`, of a traffic."""

    traffic: Traffic
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class OpenShare:
    """When this worker's conversations start."""

    offsets_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedShare:
    """This worker's users, and how long they ask."""

    num_users: int
    num_conversations: int | None
    duration_ns: int | None


@dataclass(frozen=True, slots=True)
class Go:
    """Begin: the load's zero on the monotonic clock, which all processes of a machine share."""

    start_ns: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the load."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The last order is carried out, or prepared."""


@dataclass(frozen=True, slots=True)
class Samples:
    """What was over since they were told last, and how many requests run."""

    samples: tuple[Sample, ...]
    num_running: int
