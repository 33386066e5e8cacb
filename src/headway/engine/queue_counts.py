"""How much waits to run for the first time, by class and tenant, and whose is too much. It knows no sequences.

Each class has a line of its own, so that no flood of a worse one refuses a better one. Where one is full, the tenant with
most in it gives way to one with less: whoever floods pushes out himself (longest queue drop: Suter and others, INFOCOM
1998). The lines before remote engines are bounded alike (`flow/lines.py`).
"""

from dataclasses import dataclass

from headway.core.config import SchedulerConfig
from headway.core.request import Request, ServiceClass


@dataclass(slots=True)
class Queued:
    """Choices, and the prompt tokens of each."""

    num_sequences: int = 0
    num_tokens: int = 0

    def add(self, num_sequences: int, num_tokens: int) -> None:
        """Count more, or less."""
        self.num_sequences += num_sequences
        self.num_tokens += num_tokens

    def share(self, limits: SchedulerConfig) -> float:
        """Return how much of a line it takes, by whichever bound it is nearer to."""
        by_number = self.num_sequences / max(1, limits.max_queued_requests)
        return max(by_number, self.num_tokens / max(1, limits.max_queued_tokens))


class QueueCounts:
    """Owns the counts."""

    def __init__(self) -> None:
        self._lines: dict[ServiceClass, dict[str, Queued]] = {}
        self._totals: dict[ServiceClass, Queued] = {}

    @property
    def num_tokens(self) -> int:
        """Prompt tokens of all that waits."""
        return sum(total.num_tokens for total in self._totals.values())

    def enter(self, request: Request) -> None:
        """All choices of a request came."""
        self._add(request, request.n)

    def leave(self, request: Request) -> None:
        """One choice of a request runs for the first time, or has ended before."""
        self._add(request, -1)

    def _add(self, request: Request, num_choices: int) -> None:
        num_tokens = num_choices * len(request.token_ids)
        self._totals.setdefault(request.service_class, Queued()).add(num_choices, num_tokens)
        line = self._lines.setdefault(request.service_class, {})
        queued = line.setdefault(request.tenant, Queued())
        queued.add(num_choices, num_tokens)
        if not queued.num_sequences:
            del line[request.tenant]

    def of_class(self, service_class: ServiceClass) -> Queued:
        """Return what waits in a class."""
        return self._totals.get(service_class, Queued())

    def gives_way(self, request: Request, limits: SchedulerConfig) -> str | None:
        """Return the tenant with most in a request's line; None if that would be the request's own, with it."""
        line = self._lines.get(request.service_class, {})
        if not line:
            return None
        own = line.get(request.tenant, Queued())
        num_tokens = request.n * len(request.token_ids)
        with_it = Queued(own.num_sequences + request.n, own.num_tokens + num_tokens)
        tenant = max(line, key=lambda name: line[name].share(limits))
        has_more = line[tenant].share(limits) > with_it.share(limits)
        return tenant if has_more and tenant != request.tenant else None
