"""What is told of a request as soon as it is over: cheap to send from one process to another while others are measured."""

from dataclasses import dataclass

from headway.lab.exchange import Exchange
from headway.lab.latency import e2e_ns, lag_ns, ttft_ns
from headway.lab.tokens import token_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The figures of one request; None is what it does not have."""

    failure: str | None
    """The label it is counted under; None: it succeeded."""
    ended_ns: int
    lag_ns: int
    ttft_ns: int | None
    e2e_ns: int | None
    itl_ns: float | None
    """Mean over the tokens that have an interval."""
    num_intervals: int
    output_tokens: int

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.failure is None

    @staticmethod
    def of(exchange: Exchange) -> "Sample":
        """Return what a record says."""
        counts = token_counts(exchange).counts
        events = exchange.text_events
        num_first = sum(n for event, n in zip(events, counts, strict=True) if event.at_ns == events[0].at_ns)
        num_intervals = sum(counts) - num_first
        failure = exchange.answer.failure
        return Sample(
            failure=None if failure is None else failure.label,
            ended_ns=exchange.stamps.ended_ns,
            lag_ns=lag_ns(exchange),
            ttft_ns=ttft_ns(exchange),
            e2e_ns=e2e_ns(exchange),
            itl_ns=(events[-1].at_ns - events[0].at_ns) / num_intervals if num_intervals else None,
            num_intervals=num_intervals,
            output_tokens=sum(counts),
        )
