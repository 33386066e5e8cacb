"""Where a run's warm-up ends, by a rule instead of by eye. Pure functions over latencies in the order of their starts.

What alternates by design is no warm-up: a fifth turn is slower than a first, a long prompt than a short one, and the first
request of a shared prefix finds nothing cached. So a request is judged by its TTFT relative to the median of its kind.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from headway.lab.distribution import Floats
from headway.lab.exchange import Exchange
from headway.lab.latency import due_ns, ttft_ns

BATCH = 5
"""Samples averaged to one point, as in MSER-5: single latencies are too noisy to cut at."""
LEAST_BATCHES = 4
"""With fewer there is nothing to judge by."""
CHANCE = 0.05
"""A cut that a larger share of random orders of the same samples would suggest as well is no finding."""
ORDERS = 999
SLACK = 0.1
"""Of the smallest standard error, squared: within it the curve's own noise places the minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What is left out of a run's latencies, and of them alone."""

    num_excluded: int = 0
    """Requests, whatever became of them."""
    steady: bool | None = None
    """Whether the run became steady; None = too few succeeded to tell, or it was not meant to."""
    from_ns: int | None = None
    """Requests that were due earlier are left out; None = no request is."""

    def keeps(self, exchange: Exchange) -> bool:
        """Whether a request counts."""
        return self.from_ns is None or due_ns(exchange) >= self.from_ns


def find_warm_up(exchanges: Sequence[Exchange]) -> WarmUp:
    """Return the warm-up of a run whose load was meant to be steady; the order of `exchanges` says nothing."""
    succeeded = sorted((exchange for exchange in exchanges if exchange.ok), key=in_order)
    if len(succeeded) < LEAST_BATCHES * BATCH:
        return WarmUp()
    times = np.asarray([max(1, ttft_ns(exchange) or 0) for exchange in succeeded], dtype=np.float64)
    length = warm_up_length(np.log(_relative_to_kind(times, [_kind(exchange) for exchange in succeeded])))
    if length is None:
        return WarmUp(steady=False)
    if not length:
        return WarmUp(steady=True)
    from_ns = due_ns(succeeded[length])
    num_excluded = sum(due_ns(exchange) < from_ns for exchange in exchanges)
    return WarmUp(num_excluded=num_excluded, steady=True, from_ns=from_ns)


def in_order(exchange: Exchange) -> tuple[int, int, int]:
    """Return a key that sorts requests by when they were due, always in the same way."""
    return due_ns(exchange), exchange.conversation, exchange.turn


def warm_up_length(samples: Sequence[float] | Floats) -> int | None:
    """Return how many of the first samples to leave out, a multiple of `BATCH`; None if the run does not become steady.

    MSER-5 (White, Cobb and Spratt, Winter Simulation Conference 2000): cut where the standard error of the mean of what
    remains is smallest, looking at the first half of the run alone, as the end of a run is short enough to look steady by
    chance; of cuts within `SLACK` of it the earliest. The rule alone finds something to cut in most steady runs, and what
    it cuts makes intervals narrower. So nothing is cut unless a permutation test says that the start differs from the rest
    (`CHANCE`), and if it says so of what would remain as well, the latency was still moving. One case is too short for that
    test, and the most common of all: the first request alone is slow. It is the slowest of all by chance in one of as many
    runs as there are samples, so the first batch goes. Of a run of fewer than `LEAST_BATCHES` batches nothing is left out.
    Raises ValueError for a sample that is not finite.
    """
    values = np.asarray(samples, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a sample is not finite")
    num_batches = len(values) // BATCH
    if num_batches < LEAST_BATCHES:
        return 0
    means = values[: num_batches * BATCH].reshape(num_batches, BATCH).mean(axis=1)
    errors = _errors(means)
    if _start_differs(means):
        early = int(np.argmax(errors <= (1 + SLACK) * errors.min()))
        for cut in (early, int(np.argmin(errors))):
            if not _start_differs(means[cut:]):
                return cut * BATCH
        return None
    return BATCH if values[0] > values[1:].max() and errors[1] < errors[0] else 0


def _errors(means: Floats) -> Floats:
    """Return the squared standard error of the mean of what remains after each cut, up to half of them."""
    centred = means - means.mean()
    cuts = np.arange(len(means) // 2 + 1)
    left = len(means) - cuts
    sums, squares = (np.cumsum(each[::-1])[::-1][: len(cuts)] for each in (centred, centred**2))
    return np.asarray(np.maximum(0.0, squares / left - (sums / left) ** 2) / left)


def _start_differs(means: Floats) -> bool:
    """Whether a start of up to half of the run differs from the rest by more than the same values in random order do."""
    centred = means - means.mean()
    rng, shift = np.random.default_rng(0), _shift(centred)
    as_far = sum(_shift(rng.permutation(centred)) >= shift for _ in range(ORDERS))
    return (as_far + 1) / (ORDERS + 1) <= CHANCE


def _shift(centred: Floats) -> float:
    """Return the likelihood of the likeliest step: how far the values before it lie from those after it (Page 1955)."""
    cuts = np.arange(1, len(centred) // 2 + 1)
    return float((np.cumsum(centred)[: len(cuts)] ** 2 / (cuts * (len(centred) - cuts))).max())


def _kind(exchange: Exchange) -> Hashable:
    finds_nothing = exchange.label == "shared-prefix" and exchange.cached_tokens == 0
    return exchange.label, exchange.turn, finds_nothing


def _relative_to_kind(values: Floats, kinds: Sequence[Hashable]) -> Floats:
    """Return each of the values divided by the median of those of its kind."""
    members: dict[Hashable, list[int]] = {}
    for number, kind in enumerate(kinds):
        members.setdefault(kind, []).append(number)
    relative = np.empty(len(values))
    for numbers in members.values():
        relative[numbers] = values[numbers] / np.median(values[numbers])
    return relative
