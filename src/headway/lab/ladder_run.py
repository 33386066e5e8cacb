"""Climbs the adaptive ladder against an endpoint: measures the rate that `lab/ladder.py` asks for, step by step.

A step offers Poisson arrivals. One that is decided is not carried to its end: as soon as more requests than the P95 allows
are too late, whatever the rest do, it is stopped and counts those that were still running as endless. After a broken step
one request alone is waited for, so that the next one does not pay for this one's queue.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.arrivals import Poisson, offsets_ns, steady
from headway.lab.distribution import order_interval, percentile
from headway.lab.drive import Offered
from headway.lab.exchange import Exchange
from headway.lab.ladder import Finding, Measured, Search, advance, begin
from headway.lab.ladder_rules import LadderRules
from headway.lab.latency import lag_ns, ttft_ns
from headway.lab.loader import Loader
from headway.lab.sample import Sample
from headway.lab.slo import Slo, meets

DEFAULT_STEP_NS = 10 * NS_PER_S
LEAST_REQUESTS = 100
"""Of a step: the P95 of fewer than 72 has no upper end."""
_SHARE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStep:
    """One rate, and what was found there."""

    measured: Measured
    exchanges: tuple[Exchange, ...]
    num_cut: int
    """Requests that were running when the step was decided."""
    start_ns: int | None
    lag_p99_ns: float
    num_unsent_turns: int
    client_late: bool
    """The client lagged, so that nothing is known: it was measured again."""

    @property
    def stopped(self) -> bool:
        """Whether it was decided before its end."""
        return self.num_cut > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRun:
    """All steps in order, and what they say; `finding` None: it did not come to an end."""

    steps: tuple[LadderStep, ...]
    finding: Finding | None
    limit_ms: float
    client_was_the_limit: bool = False
    """The client could not keep up with a rate, twice: nothing is known of it and of those above."""
    ended_early: str | None = None
    """What else kept it from its end, in a sentence."""

    @property
    def reported(self) -> tuple[LadderStep, ...]:
        """The steps that a summary is of: those at the rate that was found, else the last."""
        if self.finding is not None and self.finding.kept is not None:
            rate = self.finding.kept.rate
            return tuple(step for step in self.steps if step.measured.rate == rate and not step.client_late)
        return self.steps[-1:]

    def sentence(self) -> str:
        """Return what a person is told."""
        if self.finding is not None:
            return self.finding.sentence()
        if self.client_was_the_limit:
            rate = self.steps[-1].measured.rate
            return f"The client itself could not keep up with {rate:.4g}/s: give it more --processes, or another machine."
        why = f" ({self.ended_early})" if self.ended_early else ""
        return f"The ladder did not come to its end{why}; {len(self.steps)} steps were measured."


def rules_for(rules: LadderRules, slo: Slo | None) -> tuple[LadderRules, Slo | None]:
    """Return the rules with the SLO's limit on TTFT as theirs, and the limits that are left to single requests.

    The ratio of L5's two limits is kept. Raises ConfigError where the rules have limits of their own as well.
    """
    if slo is None or slo.ttft_ns is None:
        return rules, slo
    usual = LadderRules()
    if (rules.high_ms, rules.low_ms) != (usual.high_ms, usual.low_ms):
        raise ConfigError("The ladder's high_ms and the SLO's ttft limit the same: give one of them.")
    high_ms = slo.ttft_ns / NS_PER_MS
    rules = replace(rules, high_ms=high_ms, low_ms=high_ms * usual.low_ms / usual.high_ms)
    others = replace(slo, ttft_ns=None)
    return rules, None if others == Slo() else others


class LadderClimb:
    """One ladder; `steps` are those measured so far, which a run that is interrupted still tells."""

    def __init__(
        self,
        rules: LadderRules,
        slo: Slo | None,
        *,
        seed: int,
        step_ns: int | None = None,
        num_requests: int | None = None,
        lag_limit_ns: int,
        turns: int | None = 1,
    ) -> None:
        """`turns` of each conversation; None = they differ, and no step is stopped before its end."""
        self.rules, self._slo = rules_for(rules, slo)
        self._seed = seed
        self._step_ns = DEFAULT_STEP_NS if step_ns is None else step_ns
        self._num_requests = LEAST_REQUESTS if num_requests is None else num_requests
        self._lag_limit_ns = lag_limit_ns
        self._turns = turns
        self._watched: _Watch | None = None
        self.steps: list[LadderStep] = []

    def see(self, sample: Sample) -> None:
        """Take a request that is over, of the step that runs."""
        if self._watched is not None:
            self._watched.see(sample)

    async def climb(
        self, loader: Loader, on_step: Callable[[LadderStep], None] = lambda _: None
    ) -> LadderRun:
        """Measure until the ladder ends; the loader's samples go to `see` meanwhile."""
        search: Search | Finding = begin(self.rules)
        late = 0
        while isinstance(search, Search):
            try:
                step = await self._measure(search.rate, loader)
            except ConfigError as error:  # no more conversations can be made
                if not self.steps:
                    raise
                return self.run(ended_early=error.message)
            self.steps.append(step)
            on_step(step)
            if step.measured.p95_ms > self.rules.high_ms or not step.measured.slo_kept:
                probe = await loader.closed(1, num_conversations=1, duration_ns=None)
                if not any(exchange.ok for exchange in probe.exchanges):
                    return self.run(ended_early="afterwards the server did not answer a single request")
            if step.client_late:
                late += 1
                if late > 1:
                    return self.run(None, client_was_the_limit=True)
                continue
            late = 0
            search = advance(search, step.measured)
        return self.run(search)

    def run(
        self,
        finding: Finding | None = None,
        *,
        client_was_the_limit: bool = False,
        ended_early: str | None = None,
    ) -> LadderRun:
        """Return what was measured so far."""
        return LadderRun(
            steps=tuple(self.steps),
            finding=finding,
            limit_ms=self.rules.high_ms,
            client_was_the_limit=client_was_the_limit,
            ended_early=ended_early,
        )

    async def _measure(self, rate: float, loader: Loader) -> LadderStep:
        # The k-th step has gaps of its own, or a lucky draw would be measured again and again.
        seed = self._seed + 1_000_003 * (len(self.steps) + 1)
        duration_ns = max(self._step_ns, math.ceil(self._num_requests * NS_PER_S / rate))
        offsets = list(offsets_ns(steady(rate, Poisson()), seed, duration_ns=duration_ns))
        if self._turns is not None:
            self._watched = _Watch(len(offsets) * self._turns, self.rules.high_ms, loader.stop)
        try:
            offered = await loader.open(offsets)
        finally:
            self._watched = None
        late_ns = lag_p99_ns(offered.exchanges)
        return LadderStep(
            measured=judge(rate, offered, self._slo),
            exchanges=tuple(offered.exchanges),
            num_cut=offered.num_cut,
            start_ns=offered.start_ns,
            lag_p99_ns=late_ns,
            num_unsent_turns=offered.num_unsent_turns,
            client_late=late_ns > self._lag_limit_ns,
        )


class _Watch:
    """Stops a step once it is decided: its P95 is above the limit whatever the requests say that are still to end."""

    def __init__(self, num_planned: int, limit_ms: float, stop: Callable[[], None]) -> None:
        self._allowed = num_planned - math.ceil(_SHARE * num_planned)
        self._limit_ns = limit_ms * NS_PER_MS
        self._stop = stop
        self._num_late = 0

    def see(self, sample: Sample) -> None:
        if sample.ok and (sample.ttft_ns or 0) <= self._limit_ns:
            return
        self._num_late += 1
        if self._num_late == self._allowed + 1:
            self._stop()


def judge(rate: float, offered: Offered, slo: Slo | None) -> Measured:
    """Return a step's P95 of TTFT, failures and what was cut counting as endless, and whether 95 % kept the other limits."""
    waits = [
        math.inf if not exchange.ok or (told := ttft_ns(exchange)) is None else told / NS_PER_MS
        for exchange in offered.exchanges
    ]
    ordered = np.sort(np.asarray(waits + [math.inf] * offered.num_cut, dtype=np.float64))
    if not len(ordered):  # a Poisson step may be empty
        return Measured(rate=rate, p95_ms=0.0, p95_low_ms=0.0, p95_high_ms=math.inf)
    p95_ms = percentile(ordered, _SHARE)
    interval = order_interval(ordered, _SHARE)
    num_met = sum(slo is None or meets(slo, exchange) for exchange in offered.exchanges)
    return Measured(
        rate=rate,
        p95_ms=p95_ms,
        p95_low_ms=0.0 if interval is None else interval[0],
        p95_high_ms=math.inf if interval is None else interval[1],
        slo_kept=slo is None or num_met >= _SHARE * len(ordered),
    )


def lag_p99_ns(exchanges: Sequence[Exchange]) -> float:
    """Return the lag that 99 of 100 requests did not exceed; 0 of none."""
    lags = np.sort([float(lag_ns(exchange)) for exchange in exchanges])
    return percentile(lags, 0.99) if len(lags) else 0.0
