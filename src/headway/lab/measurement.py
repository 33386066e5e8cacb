"""One measurement from start to end: a workload, an arrival process, an endpoint. `headway bench` is a shell around it.

result = await measure(RunOptions(endpoint=parse_endpoint("http://127.0.0.1:8000"), workload="light", arrival="closed:4"))
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice, takewhile

import numpy as np

from headway.core.clock import NS_PER_MS
from headway.core.errors import ConfigError
from headway.lab.arrival_grammar import parse_arrival
from headway.lab.arrivals import Closed, Open, offsets_ns
from headway.lab.chat_body import chat_body
from headway.lab.client import Client, Patience
from headway.lab.code_corpus import CodeCorpus, standard_library
from headway.lab.distribution import percentile
from headway.lab.drive import Driver
from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Exchange
from headway.lab.latency import lag_ns
from headway.lab.model_list import first_model, named_model
from headway.lab.server_metrics import ServerView, scrape, view_since
from headway.lab.server_tokens import measured_estimate
from headway.lab.slo import Slo
from headway.lab.summary import Summary, summarise
from headway.lab.token_estimate import TokenEstimate, estimated
from headway.lab.trace_prompts import trace_conversations
from headway.lab.traces import read_trace
from headway.lab.workload import Conversation, WorkloadOptions, WorkloadRequest, conversations
from headway.lab.workload_spec import TraceFile, needs_lengths, parse_workload

DEFAULT_REQUESTS = 100
"""Conversations, where nothing else ends a run: as many as a p99 takes."""
LAG_LIMIT_NS = 10 * NS_PER_MS
"""A client that sends later than this in one of a hundred requests measured itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is measured. `arrival` None: one user after another, or the times of a trace."""

    endpoint: Endpoint
    model: str | None = None
    """None: the first that the endpoint lists."""
    workload: str = "light"
    arrival: str | None = None
    num_requests: int | None = None
    """Conversations, which have one request in most workloads."""
    duration_ns: int | None = None
    output_tokens: int = 128
    slo: Slo | None = None
    seed: int = 0
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What was found, with every record."""

    options: RunOptions
    model: str
    """As it was asked for, or found."""
    arrival: str
    """As it was asked for, or the workload's own."""
    token_estimate: TokenEstimate | None = None
    """What prompts' lengths were made by; None: the workload asks for none."""
    started_at: datetime
    """Wall clock, UTC: only a label."""
    start_ns: int | None
    """The load's zero on the clock of the stamps; None: nothing was sent."""
    summary: Summary
    exchanges: tuple[Exchange, ...]
    lag_p99_ns: float
    interrupted: bool
    server: ServerView | None = None
    """What the server's own metrics say; None: it has none that we know."""

    @property
    def believable(self) -> bool:
        """Whether the client kept up: its lag stayed within `LAG_LIMIT_NS` for 99 of 100 requests."""
        return self.lag_p99_ns <= LAG_LIMIT_NS


async def measure(options: RunOptions, on_exchange: Callable[[Exchange], None] = lambda _: None) -> RunResult:
    """Measure and return what was found; if cancelled, what was over by then, as long as that is anything.

    Raises ConfigError for what cannot be asked, an endpoint that does not answer, and lengths that do not fit its model.
    """
    workload = parse_workload(options.workload)
    corpus = CodeCorpus(standard_library(), options.seed)
    trace = read_trace(workload.path) if isinstance(workload, TraceFile) else None
    arrival = options.arrival or ("trace" if trace else "closed:1")
    load = None if options.arrival is None and trace else parse_arrival(arrival)
    if not isinstance(load, Open | Closed | None):
        raise ConfigError(
            "This runs one load at a time, no ladder of them: write a rate, as in --arrival poisson:5."
        )
    if trace is not None and options.num_requests is not None:
        trace = replace(
            trace, rows=trace.rows[: options.num_requests]
        )  # only what is sent has to fit the model
    if options.model is None:
        served = await first_model(options.endpoint, options.patience.connect_s)
    else:
        served = await named_model(options.endpoint, options.model)
    estimate = None
    if needs_lengths(workload):
        estimate = await measured_estimate(options.endpoint, served.name, corpus)
    sizes = WorkloadOptions(
        seed=options.seed,
        output_tokens=options.output_tokens,
        count_tokens=estimated() if estimate is None else estimated(estimate.chars_per_token),
        max_context_tokens=served.max_context_tokens,
    )
    talks: Iterator[Conversation]
    if isinstance(workload, TraceFile):
        assert trace is not None
        talks = trace_conversations(trace, corpus, sizes)
    else:
        talks = conversations(workload, corpus, sizes)
    num_conversations = options.num_requests
    endless = isinstance(load, Closed) or (isinstance(load, Open) and load.endless)
    if num_conversations is None and options.duration_ns is None and endless:
        num_conversations = len(trace.rows) if trace else DEFAULT_REQUESTS

    def body(request: WorkloadRequest) -> bytes:
        return chat_body(request, served.name, temperature=0, seed=options.seed)

    interrupted = False
    metrics_before = await scrape(options.endpoint)
    started_at = datetime.now(UTC)
    with Client(options.endpoint, options.patience) as client:
        driver = Driver(client, body, on_exchange)
        offered = driver.offered
        try:
            if isinstance(load, Closed):
                await driver.closed(
                    load.num_users,
                    talks,
                    num_conversations=num_conversations,
                    duration_ns=options.duration_ns,
                )
            else:
                recorded = [row.offset_ns for row in trace.rows] if trace else []
                await driver.open(_offsets(options, load, num_conversations, recorded), talks)
        except asyncio.CancelledError:
            if not offered.exchanges:
                raise
            interrupted = True
    server = await view_since(
        options.endpoint,
        metrics_before,
        served.name,
        num_sent=None if interrupted else len(offered.exchanges),  # what was running then was sent, too
        num_ok=sum(exchange.ok for exchange in offered.exchanges),
    )
    lags = np.sort([float(lag_ns(exchange)) for exchange in offered.exchanges])
    return RunResult(
        options=options,
        model=served.name,
        arrival=arrival,
        token_estimate=estimate,
        started_at=started_at,
        start_ns=offered.start_ns,
        summary=summarise(offered.exchanges, slo=options.slo, num_unsent_turns=offered.num_unsent_turns),
        exchanges=tuple(offered.exchanges),
        lag_p99_ns=percentile(lags, 0.99) if len(lags) else 0.0,
        interrupted=interrupted,
        server=server,
    )


def _offsets(
    options: RunOptions, load: Open | None, num_conversations: int | None, recorded: Sequence[int]
) -> Iterator[int]:
    """Return when conversations start: by `load`, or as they are `recorded`."""
    if load is not None:
        return offsets_ns(load, options.seed, num_requests=num_conversations, duration_ns=options.duration_ns)
    end_ns = math.inf if options.duration_ns is None else options.duration_ns
    return islice(takewhile(lambda offset_ns: offset_ns < end_ns, recorded), num_conversations)
