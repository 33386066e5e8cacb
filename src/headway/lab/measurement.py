"""One measurement from start to end: a workload, an arrival process, an endpoint. `headway bench` is a shell around it.

result = await measure(RunOptions(endpoint=parse_endpoint("http://127.0.0.1:8000"), workload="light", arrival="closed:4"))
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headway.core.clock import NS_PER_MS
from headway.lab.arrivals import Closed, Open
from headway.lab.drive import Offered
from headway.lab.exchange import Exchange
from headway.lab.ladder_rules import LadderRules
from headway.lab.ladder_run import LadderClimb, LadderRun, LadderStep, lag_p99_ns
from headway.lab.loader import Loader, LocalLoader
from headway.lab.model_list import first_model, named_model
from headway.lab.offer import Offer
from headway.lab.processes import ProcessLoader
from headway.lab.progress import LoadPlan
from headway.lab.run_options import RunOptions
from headway.lab.sample import Sample
from headway.lab.server_metrics import ServerView, scrape, view_since
from headway.lab.streams import StreamLoader
from headway.lab.summary import Summary, summarise
from headway.lab.token_estimate import TokenEstimate
from headway.lab.trace_facts import TraceFacts
from headway.lab.traffic import Traffic, plan_traffic

LAG_LIMIT_NS = 10 * NS_PER_MS
"""A client that sends later than this in one of a hundred requests measured itself."""


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
    """Of a ladder those of all its steps."""
    lag_p99_ns: float
    interrupted: bool
    ladder: LadderRun | None = None
    """The `summary` is then of its `reported` steps."""
    ended_early: str | None = None
    """What kept the load from being carried out to its end, in a sentence; what was over by then is here."""
    server: ServerView | None = None
    """What the server's own metrics say, of all that was sent; None: it has none that we know."""
    trace: TraceFacts | None = None
    """How the trace was read; None: the workload is none."""
    simulation: str | None = None
    """What predicted these figures, in a sentence; None: they were measured."""

    @property
    def believable(self) -> bool:
        """Whether the client kept up: its lag stayed within `LAG_LIMIT_NS` for 99 of 100 requests."""
        return self.lag_p99_ns <= LAG_LIMIT_NS


async def measure(
    options: RunOptions,
    on_sample: Callable[[Sample], None] = lambda _: None,
    on_step: Callable[[LadderStep], None] = lambda _: None,
    on_start: Callable[[LoadPlan], None] = lambda _: None,
) -> RunResult:
    """Measure and return what was found; if cancelled, what was over by then, as long as that is anything.

    `on_sample` sees each request when it is over, `on_step` each step of a ladder, `on_start` what is known of the load when
    it begins. Raises ConfigError for what cannot be asked, an endpoint that does not answer, and lengths that do not fit its
    model.
    """
    traffics = {stream.name: plan_traffic(stream.options) for stream in options.streams}
    traffics = traffics or {"": plan_traffic(options)}
    traffic = next(iter(traffics.values()))
    climb = ladder_climb(traffic)
    endpoint = options.endpoint
    if options.model is None:
        served = await first_model(endpoint, options.patience.connect_s)
    else:
        served = await named_model(endpoint, options.model)
    traffics = {name: await each.for_model(served) for name, each in traffics.items()}
    traffic = next(iter(traffics.values()))

    def see(sample: Sample) -> None:
        if climb is not None:
            climb.see(sample)
        on_sample(sample)

    metrics_before = await scrape(endpoint)
    started_at = datetime.now(UTC)
    ladder: LadderRun | None = None
    async with StreamLoader(traffics, see) if options.streams else _loader(traffic, see) as loader:
        on_start(_plan(traffics, loader))
        if climb is None or isinstance(loader, StreamLoader):
            offer = loader if isinstance(loader, StreamLoader) else Offer(loader, traffic)
            load = asyncio.create_task(offer.carry_out())
            interrupted = await _interrupted(load, offer.stop)
            parts: Sequence[Offered | LadderStep] = load.result()
        else:
            ascent = asyncio.create_task(climb.climb(loader, on_step))
            interrupted = await _interrupted(ascent, ascent.cancel)
            ladder = climb.run() if ascent.cancelled() else ascent.result()
            parts = ladder.steps
    exchanges = [exchange for part in parts for exchange in part.exchanges]
    if interrupted and not exchanges:
        raise asyncio.CancelledError
    looking = asyncio.create_task(
        view_since(
            endpoint,
            metrics_before,
            served.name,
            # What was running when it was stopped was sent, too, and what a ladder waits for between its steps.
            num_sent=None if interrupted or ladder is not None else len(exchanges),
            num_ok=sum(exchange.ok for exchange in exchanges),
        )
    )
    interrupted |= await _interrupted(looking, looking.cancel)
    result = run_result(
        options, traffics, parts, ladder=ladder, started_at=started_at, interrupted=interrupted
    )
    try:
        await asyncio.sleep(0)  # what was asked for while that was computed comes now
    except asyncio.CancelledError:
        interrupted = True
    return replace(result, interrupted=interrupted, server=None if looking.cancelled() else looking.result())


def ladder_climb(traffic: Traffic) -> LadderClimb | None:
    """Return what climbs the traffic's ladder; None where its load is none."""
    if not isinstance(traffic.load, LadderRules):
        return None
    options = traffic.options
    return LadderClimb(
        traffic.load,
        options.slo,
        seed=options.seed,
        step_ns=options.duration_ns,
        num_requests=options.num_requests,
        lag_limit_ns=LAG_LIMIT_NS,
        turns=traffic.turns,
    )


def run_result(
    options: RunOptions,
    traffics: Mapping[str, Traffic],
    parts: "Sequence[Offered | LadderStep]",
    *,
    ladder: LadderRun | None,
    started_at: datetime,
    interrupted: bool = False,
) -> RunResult:
    """Return what the parts of a load, or a ladder's steps, add up to; nothing of the server's own view."""
    traffic = next(iter(traffics.values()))
    assert traffic.model is not None
    reported = parts if ladder is None else ladder.reported
    told = [exchange for part in reported for exchange in part.exchanges]
    return RunResult(
        options=options,
        model=traffic.model.name,
        arrival=options.arrival or traffic.arrival,
        token_estimate=next((each.token_estimate for each in traffics.values() if each.token_estimate), None),
        started_at=started_at,
        start_ns=parts[0].start_ns if parts else None,
        summary=summarise(
            told,
            parts=[part.exchanges for part in reported],
            slo=options.slo,
            num_unsent_turns=sum(part.num_unsent_turns for part in reported),
            seek_warm_up=not options.streams and _is_steady(traffic),
        ),
        exchanges=tuple(exchange for part in parts for exchange in part.exchanges),
        lag_p99_ns=lag_p99_ns(told),
        interrupted=interrupted,
        ladder=ladder,
        ended_early=next(
            (part.ended_early for part in parts if isinstance(part, Offered) and part.ended_early), None
        ),
        trace=traffic.facts,
    )


def _plan(traffics: Mapping[str, Traffic], loader: Loader | StreamLoader) -> LoadPlan:
    is_ladder = any(isinstance(traffic.load, LadderRules) for traffic in traffics.values())
    numbers = [traffic.num_expected() for traffic in traffics.values()]
    durations = [traffic.options.duration_ns for traffic in traffics.values()]
    known_ns = [duration_ns for duration_ns in durations if duration_ns is not None]
    return LoadPlan(
        num_requests=None if None in numbers else sum(number or 0 for number in numbers),
        duration_ns=max(known_ns) if not is_ladder and len(known_ns) == len(durations) else None,
        num_running=lambda: loader.num_running,
    )


def _is_steady(traffic: Traffic) -> bool:
    load = traffic.load
    return isinstance(load, Closed) or (isinstance(load, Open) and load.is_steady)


async def _interrupted(task: "asyncio.Task[Any]", stop: Callable[[], object]) -> bool:
    """Wait for a task; when cancelled, `stop` it, wait for what it leaves, and return True."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        stop()
        await asyncio.wait({task})
        return True
    return False


def _loader(traffic: Traffic, on_sample: Callable[[Sample], None]) -> Loader:
    count = traffic.num_processes()
    if count == 1:
        return LocalLoader(traffic, on_sample)
    return ProcessLoader(traffic, on_sample, count)
