"""What a run is asked to measure. Values only."""

from dataclasses import dataclass, field

from headway.lab.client import Patience
from headway.lab.endpoint import Endpoint
from headway.lab.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is measured. `arrival` None: one user after another, or the times of a trace."""

    endpoint: Endpoint
    model: str | None = None
    """None: the first that the endpoint lists."""
    workload: str = "light"
    arrival: str | None = None
    num_requests: int | None = None
    """Conversations, which have one request in most workloads; of a ladder's step the least."""
    duration_ns: int | None = None
    """In which conversations may start; of a ladder's step."""
    output_tokens: int = 128
    slo: Slo | None = None
    seed: int = 0
    num_processes: int | None = None
    """Of the client; None: as many as the load takes."""
    patience: Patience = field(default_factory=Patience)
