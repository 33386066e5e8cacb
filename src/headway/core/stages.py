"""Where a request's time went, from the socket to its last byte, in stages that follow each other and leave nothing out.

    parse     its headers and body came, and were read
    admit     limits, template, tokenising, until the engine was asked
    queue     until the first step that computes it: the way to the engine, a grammar's compilation, the wait
    prefill   until its first token was drawn
    decode    until its last token was drawn
    send      until its last byte was handed to the socket

Marks come from two processes, the gateway's and the engine's, of one machine: both read CLOCK_MONOTONIC, which is one
clock for all of them (clock_gettime(2)).
"""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from headway.core.messages import Finished

Stage = Literal["parse", "admit", "queue", "prefill", "decode", "send"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)

Stages = tuple[tuple[Stage, int], ...]
"""The stages that a request reached, in order, with their nanoseconds."""

_NS_PER_US: Final = 1000


@dataclass(slots=True)
class Marks:
    """When a request left each stage, in monotonic nanoseconds; None = it did not, or nobody told."""

    arrival_ns: int
    parsed_ns: int | None = None
    submitted_ns: int | None = None
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    finished_ns: int | None = None

    def note_finished(self, finished: Finished) -> None:
        """Take the engine's times of one part; of several parts what came first counts, and the last end."""
        self.scheduled_ns = _earlier(self.scheduled_ns, finished.first_scheduled_ns)
        self.first_token_ns = _earlier(self.first_token_ns, finished.first_token_ns)
        if finished.finished_ns is not None:
            self.finished_ns = max(self.finished_ns or 0, finished.finished_ns)

    def split(self, end_ns: int, seen_first_token_ns: int | None = None) -> Stages:
        """Return the stages until `end_ns`; their sum is `end_ns` - `arrival_ns`.

        A stage whose end is unknown lasts until the next known mark, and what lies between did not happen. Of an engine
        that does not tell its times, or died, `seen_first_token_ns` is when the first token reached the gateway; all of the
        wait for it counts as prefill then. A mark that lies outside what is possible is moved to its nearest bound.
        """
        scheduled_ns, first_token_ns = self.scheduled_ns, self.first_token_ns
        if first_token_ns is None:
            first_token_ns = seen_first_token_ns
        if scheduled_ns is None and first_token_ns is not None:
            scheduled_ns = self.submitted_ns
        marks = (self.parsed_ns, self.submitted_ns, scheduled_ns, first_token_ns, self.finished_ns, end_ns)
        found: list[tuple[Stage, int]] = []
        start_ns, stage = self.arrival_ns, STAGES[0]
        for index, mark_ns in enumerate(marks, start=1):
            if mark_ns is None:
                continue
            bounded_ns = max(start_ns, min(mark_ns, end_ns))
            found.append((stage, bounded_ns - start_ns))
            start_ns = bounded_ns
            if index < len(STAGES):
                stage = STAGES[index]
        return tuple(found)


def in_ms(stages: Stages) -> dict[str, float]:
    """Return milliseconds by stage, to the microsecond, rounded such that they add up to the rounded whole."""
    rounded: dict[str, float] = {}
    end_ns = end_us = 0
    for stage, duration_ns in stages:
        end_ns += duration_ns
        start_us, end_us = end_us, end_ns // _NS_PER_US
        rounded[stage] = (end_us - start_us) / 1000
    return rounded


def _earlier(one_ns: int | None, other_ns: int | None) -> int | None:
    if one_ns is None or other_ns is None:
        return one_ns if other_ns is None else other_ns
    return min(one_ns, other_ns)
