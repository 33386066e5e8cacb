"""What a run is asked to measure. Values only."""

from dataclasses import dataclass, field
from pathlib import Path

from headway.lab.client import Patience
from headway.lab.endpoint import Endpoint
from headway.lab.slo import Slo
from headway.lab.trace_replay import TraceReplay


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is measured. `arrival` None: one user after another, or the times of a trace."""

    endpoint: Endpoint
    model: str | None = None
    """None: the first that the endpoint lists."""
    workload: str = "light"
    arrival: str | None = None
    lines: int | None = None
    """Of code in a prompt; None: the workload's own number."""
    replay: TraceReplay = field(default_factory=TraceReplay)
    """What is changed of a trace."""
    num_requests: int | None = None
    """No conversation begins once those before it have so many; each goes on to its end. Of a ladder's step the least."""
    duration_ns: int | None = None
    """In which conversations may start; of a ladder's step."""
    output_tokens: int = 128
    tokenizer: Path | None = None
    """The model's tokenizer.json, for answers without usage."""
    slo: Slo | None = None
    seed: int = 0
    num_processes: int | None = None
    """Of the client; None: as many as the load takes."""
    num_skipped: int = 0
    """Conversations of the workload passed over first, as an earlier run sent them; arrivals are then others, too."""
    session: str | None = None
    """What the name begins with by which each conversation calls itself in a header; None: it does not."""
    patience: Patience = field(default_factory=Patience)
    streams: tuple["Stream", ...] = ()
    """What is offered at once instead, each with options of its own; empty: these options are the only stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One of several loads that a run offers at once; names differ within a run."""

    name: str
    options: RunOptions
