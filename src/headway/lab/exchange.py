"""The record of one request: when what happened, what came back, how it ended. Values only; nobody measures here.

All stamps are nanoseconds of one monotonic clock of one process. A record that contradicts itself is refused when it is
made, because figures of it would be believed: what happened later has no earlier stamp. One thing is not a contradiction:
a timer may fire early, so `dispatched_ns` may lie before `intended_ns`; `lab/latency.py` then counts from when the
request was sent.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from headway.lab.deltas import TEXT_KINDS, DeltaKind, TokenUsage

FailureKind = Literal[
    "connection", "refused", "status", "error_event", "garbage", "closed", "silence", "empty"
]
"""Why a request counts as failed. `connection`: none was made, or it broke before the answer's status. `refused`: 429 or
503, the server says not now. `status`: another status that is not 200. `error_event`: an error inside HTTP 200.
`garbage`: what came cannot be read. `closed`: the answer stopped before its end. `silence`: nothing came for as long as
the client waits. `empty`: the answer ended well and held nothing."""


class ContradictoryRecord(ValueError):
    """Stamps or counts of one request that cannot all be true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a request failed. `code`: the reason as the server names it to programs, None = it named none, or no status came.

    `retry_after_s`: as the server asked, None = it did not, or not in seconds.
    """

    kind: FailureKind
    message: str
    status: int | None = None
    code: str | None = None
    retry_after_s: float | None = None

    @property
    def label(self) -> str:
        """The name it is counted under: the kind, with the HTTP status where that is the reason."""
        return f"{self.kind}_{self.status}" if self.kind in ("refused", "status") else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One event of the answer. `num_tokens`: how many it stands for, None = the server did not say and nobody counted."""

    at_ns: int
    kind: DeltaKind
    num_chars: int = 0
    num_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. `failure`: None = the request succeeded. `events`: all of them, in order of arrival."""

    events: tuple[StreamEvent, ...] = ()
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    failure: Failure | None = None
    content: str = ""
    """Its text, reasoning and tool calls apart: what a conversation goes on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """When a request was due, dispatched, written (its first byte), answered (the first byte received), and over.

    `connect_ns` and `tls_ns` are durations: what opening a connection took after the dispatch, 0 where an open one was used.
    They are kept apart from every latency. None = the request did not get so far.
    """

    intended_ns: int
    dispatched_ns: int
    written_ns: int | None = None
    first_byte_ns: int | None = None
    ended_ns: int
    connect_ns: int = 0
    tls_ns: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be; raises ContradictoryRecord."""
        if self.first_byte_ns is not None and self.written_ns is None:
            raise ContradictoryRecord("an answer to a request that was never written")
        happened = [("dispatched", self.dispatched_ns), ("written", self.written_ns)]
        happened += [("answered", self.first_byte_ns), ("over", self.ended_ns)]
        _in_order([(what, at_ns) for what, at_ns in happened if at_ns is not None])
        if self.connect_ns < 0 or self.tls_ns < 0:
            raise ContradictoryRecord("a connection that took less than no time")
        until_ns = self.ended_ns if self.written_ns is None else self.written_ns
        if self.setup_ns > until_ns - self.dispatched_ns:
            raise ContradictoryRecord(
                "a connection that took longer than the time before the first byte written"
            )

    @property
    def setup_ns(self) -> int:
        """What opening the connection took, TCP and TLS."""
        return self.connect_ns + self.tls_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer. `conversation` and `turn`: which dialogue it belongs to, and where in it, from 1.

    `label`: which part of the workload it is of, such as `light` or `context:2048`. `stream`: which of a run's streams it is
    of; "" = the run has one.
    """

    stamps: Stamps
    answer: Answer
    conversation: int = 0
    turn: int = 1
    label: str = ""
    stream: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be; raises ContradictoryRecord."""
        events, first_byte_ns = self.answer.events, self.stamps.first_byte_ns
        if events and first_byte_ns is None:
            raise ContradictoryRecord("events of an answer whose first byte never came")
        if events and first_byte_ns is not None:
            names = [("answered", first_byte_ns), *(("an event", event.at_ns) for event in events)]
            _in_order([*names, ("over", self.stamps.ended_ns)])
        if any(event.num_chars < 0 or (event.num_tokens or 0) < 0 for event in events):
            raise ContradictoryRecord("an event of less than no text")
        if self.answer.failure is None and not self.text_events:
            raise ContradictoryRecord("a success that brought no text")

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.answer.failure is None

    @property
    def text_events(self) -> list[StreamEvent]:
        """The events that stand for tokens, in order of arrival."""
        return [event for event in self.answer.events if event.kind in TEXT_KINDS]

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that the server did not compute anew, as its usage says; None = it does not say."""
        return self.answer.usage.cached_tokens if self.answer.usage else None


def _in_order(happened: list[tuple[str, int]]) -> None:
    for (earlier, earlier_ns), (later, later_ns) in pairwise(happened):
        if later_ns < earlier_ns:
            raise ContradictoryRecord(f"{later} {earlier_ns - later_ns} ns before {earlier}")
