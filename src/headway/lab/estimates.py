"""A run's figures with what chance could have made of them: what they would be of its conversations, drawn again.

Requests of one conversation resemble each other, so whole conversations are drawn (Davison and Hinkley, Bootstrap Methods
and their Application, section 3.8). Shares are told with Wilson's interval, which knows that no failure of twenty does not
mean that none can happen (Brown, Cai and DasGupta 2001); each conversation counts as one request in it, which is cautious.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from headway.core.clock import NS_PER_MS
from headway.lab.distribution import (
    CONFIDENCE,
    LEAST_CLUSTERS,
    RESAMPLES,
    Floats,
    Interval,
    ends,
    order_interval,
)
from headway.lab.exchange import Exchange
from headway.lab.goodput import values
from headway.lab.latency import e2e_ns, intervals, tpot_ns, ttft_ns

Unit = Literal["ms", "tokens/s", "share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A figure that two runs can be compared by."""

    key: str
    name: str
    unit: Unit
    more_is_better: bool = False


KINDS: Final = (
    Kind(key="ttft_p50", name="TTFT p50", unit="ms"),
    Kind(key="ttft_p95", name="TTFT p95", unit="ms"),
    Kind(key="itl_mean", name="ITL mean", unit="ms"),
    Kind(key="itl_p50", name="ITL p50", unit="ms"),
    Kind(key="tpot_p50", name="TPOT p50", unit="ms"),
    Kind(key="e2e_p50", name="E2E p50", unit="ms"),
    Kind(key="output_tok_s", name="output rate", unit="tokens/s", more_is_better=True),
    Kind(key="failures", name="failures", unit="share"),
    Kind(key="goodput", name="goodput", unit="share", more_is_better=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure of one run. `draws`: what it was in each resample; None where only the interval is known, or nothing."""

    value: float
    interval: Interval | None = None
    draws: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """Values of one figure, ascending, each with its weight (tokens) and the index of its conversation."""

    ordered: Floats
    weights: NDArray[np.int64]
    conversations: NDArray[np.int64]

    def at(self, share: float | None, times: NDArray[np.int64]) -> float:
        """Return the percentile of a `share`, or the mean, where conversations count `times`; NaN where none does."""
        counts = times[self.conversations] * self.weights
        if share is None:
            return float(counts @ self.ordered / num) if (num := int(counts.sum())) else math.nan
        up_to = np.cumsum(counts)
        if not up_to[-1]:
            return math.nan
        rank = max(1, math.ceil(round(int(up_to[-1]) * share, 9)))  # as `distribution.percentile`
        return float(self.ordered[np.searchsorted(up_to, rank)])


def latency_estimates(exchanges: Sequence[Exchange], seed: int = 0) -> dict[str, Estimate]:
    """Return the latencies of `KINDS` over requests that succeeded, by key, those that the run has; in milliseconds.

    `seed`: of the draws; two runs that are compared take different ones, since they are independent.
    """
    samples = _samples(exchanges)
    wanted = [(kind.key, *_SHARES[kind.key]) for kind in KINDS if kind.key in _SHARES]
    figures = {key: (samples[of], share) for key, of, share in wanted if len(samples[of].ordered)}
    num = len({exchange.conversation for exchange in exchanges})
    once = np.ones(num, dtype=np.int64)
    rng = np.random.default_rng(seed)
    drawn = {
        key: np.empty(RESAMPLES)
        for key, (sample, share) in figures.items()
        if num >= LEAST_CLUSTERS and (share is None or order_interval(sample.ordered, share) is not None)
    }
    for i in range(RESAMPLES if drawn else 0):
        times = np.bincount(rng.integers(num, size=num), minlength=num)
        for key, draws in drawn.items():
            sample, share = figures[key]
            draws[i] = sample.at(share, times)
    found = {}
    for key, (sample, share) in figures.items():
        of_key = drawn.get(key)
        if of_key is not None and np.isnan(of_key).any():  # so few succeeded that a resample has none
            of_key = None
        interval = None if of_key is None else ends(of_key)
        found[key] = Estimate(value=sample.at(share, once), interval=interval, draws=of_key)
    return found


def share_estimate(num: int, of: int, num_conversations: int) -> Estimate:
    """Return `num` ÷ `of` with Wilson's interval, as if each conversation were one request."""
    share = num / of
    z2 = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) ** 2
    n = num_conversations
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2) / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Estimate(value=share, interval=(min(share, middle - half), max(share, middle + half)))


_SHARES: Final[Mapping[str, tuple[str, float | None]]] = {
    "ttft_p50": ("ttft", 0.5),
    "ttft_p95": ("ttft", 0.95),
    "itl_mean": ("itl", None),
    "itl_p50": ("itl", 0.5),
    "tpot_p50": ("tpot", 0.5),
    "e2e_p50": ("e2e", 0.5),
}
"""Of what sample each latency is which percentile; None is the mean."""


def _samples(exchanges: Sequence[Exchange]) -> dict[str, _Sample]:
    names = {name: index for index, name in enumerate({exchange.conversation for exchange in exchanges})}
    samples = {}
    for key, figure in (("ttft", ttft_ns), ("tpot", tpot_ns), ("e2e", e2e_ns)):
        found = values(figure, exchanges)
        ones = [1] * len(found.successes)
        samples[key] = _sample(
            found.successes, ones, [names[number] for number in found.success_conversations]
        )
    each: list[float] = []
    tokens: list[int] = []
    of: list[int] = []
    for exchange in exchanges:
        for run in intervals(exchange).runs if exchange.ok else ():
            each.append(run.each_ns)
            tokens.append(run.num_tokens)
            of.append(names[exchange.conversation])
    samples["itl"] = _sample(each, tokens, of)
    return samples


def _sample(each_ns: Sequence[float], weights: Sequence[int], conversations: Sequence[int]) -> _Sample:
    each_ms = np.asarray(each_ns, dtype=np.float64) / NS_PER_MS
    order = np.argsort(each_ms, kind="stable")
    return _Sample(
        ordered=each_ms[order],
        weights=np.asarray(weights, dtype=np.int64)[order],
        conversations=np.asarray(conversations, dtype=np.int64)[order],
    )
