"""When requests start: offsets from the start of a run, in integer nanoseconds, known before the first is sent.

An open load is a rate over time (stages, each a step or a linear ramp) and a process that says how arrivals scatter around
it. Every process is drawn at rate 1 and its k-th point S_k is placed where the expected number of arrivals, the integral of
the rate, reaches S_k: time rescaling (Çinlar, "Introduction to stochastic processes", 1975, section 4.7), which for Poisson
arrivals is exact, ramps included. Gaps are never rescaled to hit a count: a Poisson run's number of requests varies, as it
should. A closed load has no offsets: each user sends when its last answer ended.

It knows no clock and no command line; `arrival_grammar` reads the forms of `--arrival`.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from headway.core.clock import NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.variates import exponential, gamma

MIN_RATE, MAX_RATE = 1e-6, 1e6
"""Requests per second, from one in eleven days; offsets are whole nanoseconds, of which the highest rate has 1,000 a gap."""
MIN_SHAPE, MAX_SHAPE = 0.01, 10_000.0
"""Coefficients of variation from 10 to 0.01: burstier is silence with one clump, smoother is `constant`."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Arrivals as even as can be: one whenever the expected number reaches the next whole number, 0 included."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals: exponential gaps, coefficient of variation 1."""


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma gaps with `shape` (vLLM's burstiness): coefficient of variation 1/√shape, 1 is Poisson, below 1 bursts."""

    shape: float

    def __post_init__(self) -> None:
        if not MIN_SHAPE <= self.shape <= MAX_SHAPE:
            raise ConfigError(
                f"The shape of gamma arrivals must be a number from {MIN_SHAPE:g} to {MAX_SHAPE:g}, "
                f"such as 0.5 for bursts or 4 for even gaps; got {self.shape:g}."
            )


Process = Constant | Poisson | Gamma


@dataclass(frozen=True, slots=True)
class Stage:
    """The rate, in requests per second, goes from `from_rate` to `to_rate` in `duration_ns`; None: it never ends."""

    from_rate: float
    to_rate: float
    duration_ns: int | None = None

    def __post_init__(self) -> None:
        for rate in (self.from_rate, self.to_rate):
            if rate and not MIN_RATE <= rate <= MAX_RATE:
                raise ConfigError(
                    f"A rate must be 0 or from {MIN_RATE:f} to {MAX_RATE:.0f} requests per second; got {rate:g}."
                )
        if self.duration_ns is None:
            if self.from_rate != self.to_rate or not self.from_rate:
                raise ConfigError("A stage without an end needs one rate above 0.")
        elif self.duration_ns < 1:
            raise ConfigError("A stage must last longer than 0, as in 5@30s.")

    def expected(self) -> Fraction | float:
        """Return the expected number of arrivals, from the rates as they are written; infinity without an end."""
        if self.duration_ns is None:
            return math.inf
        mean_rate = (Fraction(str(self.from_rate)) + Fraction(str(self.to_rate))) / 2
        return mean_rate * self.duration_ns / NS_PER_S

    def reached_ns(self, expected: float) -> int:
        """Return when, since the stage's start, `expected` arrivals are expected; below the duration, never falling."""
        if self.from_rate == self.to_rate or self.duration_ns is None:
            reached_ns = round(expected * NS_PER_S / self.from_rate)
        else:  # the root of from_rate t + slope t²/2 = expected that does not cancel
            slope = (self.to_rate - self.from_rate) * NS_PER_S / self.duration_ns
            square = self.from_rate * self.from_rate + 2 * slope * expected
            divisor = self.from_rate + math.sqrt(max(0.0, square))
            reached_ns = round(2 * expected * NS_PER_S / divisor) if divisor else 0
        return reached_ns if self.duration_ns is None else min(reached_ns, self.duration_ns - 1)


@dataclass(frozen=True, slots=True)
class Open:
    """Requests start when they are due, whatever became of the others."""

    stages: tuple[Stage, ...]
    process: Process

    def __post_init__(self) -> None:
        if not any(stage.from_rate or stage.to_rate for stage in self.stages):
            raise ConfigError("One stage at least needs a rate above 0, as in stages:5@30s.")
        if any(stage.duration_ns is None for stage in self.stages[:-1]):
            raise ConfigError("Only the last stage may be without an end.")

    @property
    def endless(self) -> bool:
        """Whether only a number of requests or a duration ends it."""
        return self.stages[-1].duration_ns is None

    @property
    def is_steady(self) -> bool:
        """Whether its rate never changes, so that latency that does is a warm-up."""
        return len({rate for stage in self.stages for rate in (stage.from_rate, stage.to_rate)}) == 1


@dataclass(frozen=True, slots=True)
class Closed:
    """`num_users` users, each of which sends its next request when its last one has ended."""

    num_users: int

    def __post_init__(self) -> None:
        if self.num_users < 1:
            raise ConfigError(f"A closed load needs one user at least, as in closed:4; got {self.num_users}.")


@dataclass(frozen=True, slots=True)
class ClosedSteps:
    """Closed loads in turn, each with as many conversations or for as long as a run: the curve of latency in concurrency."""

    steps: tuple[Closed, ...]

    def __post_init__(self) -> None:
        if len(self.steps) < 2:
            raise ConfigError("Steps of a closed load are two at least, as in closed:1,2,4,8.")


def steady(rate: float, process: Process) -> Open:
    """Return arrivals at `rate` requests per second without an end."""
    return Open((Stage(rate, rate),), process)


def offsets_ns(
    load: Open, seed: int, *, num_requests: int | None = None, duration_ns: int | None = None
) -> Iterator[int]:
    """Yield each request's intended start, in ns since the run's start, never falling, below `duration_ns`.

    It ends with the stages, after `num_requests` or at `duration_ns`, whichever comes first; raises ConfigError at once
    if none of them does. The same arguments yield the same offsets on every machine and Python version; the seed's
    stream is apart from those that draw prompts, which would otherwise go with the gaps.
    """
    if load.endless and num_requests is None and duration_ns is None:
        raise ConfigError("Say when to stop: --requests N or --duration S.")
    offsets = _placed(load.stages, _unit_points(load.process, Random(f"arrivals:{seed}")))
    if duration_ns is not None:
        end_ns = duration_ns
        offsets = itertools.takewhile(lambda offset_ns: offset_ns < end_ns, offsets)
    return itertools.islice(offsets, num_requests)


def _unit_points(process: Process, random: Random) -> Iterator[float]:
    """Return the points of `process` at rate 1."""
    match process:
        case Constant():
            return itertools.count()
        case Poisson():
            return itertools.accumulate(exponential(random) for _ in itertools.repeat(None))
        case Gamma(shape):
            return itertools.accumulate(gamma(random, shape) / shape for _ in itertools.repeat(None))


def _placed(stages: tuple[Stage, ...], points: Iterator[float]) -> Iterator[int]:
    """Yield for each point the time at which that many arrivals are expected, until the stages end."""
    start_ns, total, point = 0, Fraction(0), next(points)
    for stage in stages:
        expected = stage.expected()
        before, after = float(total), float(total + expected)  # exact where it matters: at whole numbers
        while point < after:
            yield start_ns + stage.reached_ns(point - before)
            point = next(points)
        if isinstance(expected, Fraction) and stage.duration_ns is not None:
            total, start_ns = total + expected, start_ns + stage.duration_ns
