"""How a recorded trace is replayed: its grid spread, its speed changed, its bytes read as tokens; refusing what has no use.

It sends nothing; `lab/measurement.py` replays what this returns.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headway.core.clock import NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.trace import GRID_NS, Trace, TraceFormat, at_speed, dequantise
from headway.lab.trace_access_log import TokenRule
from headway.lab.traces import read_trace
from headway.lab.workload_spec import TraceFile, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReplay:
    """What is changed of a trace; None changes nothing."""

    speed: float | None = None
    """So many times as fast."""
    spread_ns: int | Literal["grid"] | None = None
    """Requests of one time are spread over so much time, or over the grid of the trace's format."""
    tokens: TokenRule | None = None
    """How an access log's bytes become tokens."""

    def cell_ns(self, trace_format: TraceFormat) -> int | None:
        """Return over how much time requests of one time are spread at most; None: they are not."""
        return GRID_NS[trace_format] if self.spread_ns == "grid" else self.spread_ns


def trace_replay(
    *, speed: float | None, spread_times: bool | float, bytes_per_token: tuple[float, float] | None
) -> TraceReplay:
    """Return what is asked; `spread_times` is in seconds, True for the grid. Raises ConfigError for bytes not over 0."""
    spread_ns: int | Literal["grid"] | None = None
    if spread_times is not False:
        spread_ns = "grid" if spread_times is True else round(spread_times * NS_PER_S)
    return TraceReplay(
        speed=speed,
        spread_ns=spread_ns,
        tokens=None if bytes_per_token is None else TokenRule(*bytes_per_token),
    )


def recorded_trace(workload: Workload, replay: TraceReplay, arrival: str | None) -> Trace | None:
    """Return the trace that a workload names, as it was recorded; None where it names none.

    Raises ConfigError as `read_trace` does, and for what is to be changed of something that is not there or not used.
    """
    of_times = {"--trace-speed": replay.speed, "--spread-times": replay.spread_ns}
    for option, value in {**of_times, "--bytes-per-token": replay.tokens}.items():
        if value is not None and not isinstance(workload, TraceFile):
            raise ConfigError(f"{option} is for traces alone, as in --workload trace:FILE.")
        if value is not None and option in of_times and arrival is not None:
            raise ConfigError(
                f"{option} changes a trace's times, which --arrival {arrival} replaces: give one of them."
            )
    return read_as(workload.path, replay.tokens) if isinstance(workload, TraceFile) else None


def read_as(path: Path, tokens: TokenRule | None) -> Trace:
    """Return the trace in a file; raises ConfigError as `read_trace` does, and for a rule where tokens are told."""
    trace = read_trace(path, tokens)
    if tokens is not None and trace.format is not TraceFormat.ACCESS_LOG:
        raise ConfigError(
            f"--bytes-per-token is for access logs alone; {path} tells tokens ({trace.format})."
        )
    return trace


def replayed(trace: Trace, replay: TraceReplay, seed: int) -> Trace:
    """Return the trace with the times it is replayed at: spread on its own time line, then changed in speed."""
    cell_ns = replay.cell_ns(trace.format)
    if cell_ns is not None:
        trace = dequantise(trace, seed, cell_ns)
    return trace if replay.speed is None else at_speed(trace, replay.speed)
