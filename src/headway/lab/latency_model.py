"""What a run's latencies follow (L3): decode and prefill apart, with what is known to move them. Pure functions.

Decode is the time between arrivals, each divided by its tokens: tokens of one chunk have no times of their own, so that they
are one sample, not several. Prefill is TTFT, where requests are of several kinds (part, turn, cached or not) relative to the
mean of its kind, since no one distribution holds short prompts and long ones.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.core.clock import NS_PER_MS
from headway.lab.arrival_table import IntervalTable, arrival_table, interval_table
from headway.lab.concurrency import InFlight
from headway.lab.exchange import Exchange
from headway.lab.figures import interval_json, rounded
from headway.lab.interval_fit import IntervalModel, fit_intervals
from headway.lab.latency import ttft_ns
from headway.lab.robust_line import Line, robust_line

LEAST_OF_KIND = 10
"""Of fewer, each lies near their mean whatever it is."""
LEAST_SPREAD = 1.0
"""Between the 5th and the 95th percentile of requests in flight: with less nothing is said of their effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeModel:
    """Of inter-token intervals, in milliseconds."""

    model: IntervalModel
    tokens_per_arrival: float
    in_flight: Line | None
    """Requests' mean intervals against the mean number in flight meanwhile; None = that hardly varied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillModel:
    """Of TTFT, in milliseconds where requests are of one kind."""

    model: IntervalModel
    num_kinds: int
    """With several, of TTFT divided by the geometric mean of its kind: a median would be many samples itself, at 1."""


def decode_model(successes: Sequence[Exchange], in_flight: InFlight) -> DecodeModel | None:
    """Return the model of inter-token intervals; None with too few to tell."""
    table = interval_table(arrival_table(successes))
    model = fit_intervals(table.each_ns / NS_PER_MS)
    if model is None:
        return None
    return DecodeModel(
        model=model,
        tokens_per_arrival=float(table.num_tokens.mean()),
        in_flight=_per_request_in_flight(successes, table, in_flight),
    )


def prefill_model(successes: Sequence[Exchange]) -> PrefillModel | None:
    """Return the model of TTFT; None with too few to tell."""
    kinds = [(exchange.label, exchange.turn, bool(exchange.cached_tokens)) for exchange in successes]
    numbers = Counter(kinds)
    kept = [number for number, kind in enumerate(kinds) if numbers[kind] >= LEAST_OF_KIND]
    places = {kind: place for place, kind in enumerate(dict.fromkeys(kinds[number] for number in kept))}
    times = np.asarray([ttft_ns(successes[number]) or 0 for number in kept], dtype=np.float64) / NS_PER_MS
    if len(places) > 1:
        place = np.asarray([places[kinds[number]] for number in kept])
        logarithms = np.log(np.maximum(times, 1 / NS_PER_MS))
        means = np.bincount(place, logarithms) / np.bincount(place)
        times = np.exp(logarithms - means[place])
    model = fit_intervals(times)
    return None if model is None else PrefillModel(model=model, num_kinds=len(places))


def _per_request_in_flight(
    successes: Sequence[Exchange], table: IntervalTable, in_flight: InFlight
) -> Line | None:
    """Return the line through one point a request: its intervals are not independent of each other, requests nearly are."""
    num_tokens = np.bincount(table.request, table.num_tokens, len(successes))
    sums = np.bincount(table.request, table.each_ns * table.num_tokens, len(successes))
    some = np.flatnonzero(num_tokens)
    events = [successes[number].text_events for number in some.tolist()]
    from_ns = np.asarray([of[0].at_ns for of in events], dtype=np.int64)
    to_ns = np.asarray([of[-1].at_ns for of in events], dtype=np.int64)
    numbers = in_flight.mean(from_ns, to_ns)
    low, high = np.quantile(numbers, (0.05, 0.95))
    return (
        None if high - low < LEAST_SPREAD else robust_line(numbers, sums[some] / num_tokens[some] / NS_PER_MS)
    )


def decode_json(found: DecodeModel | None) -> dict[str, object] | None:
    """Return the model of decode as JSON's types."""
    if found is None:
        return None
    line = found.in_flight
    return _model_json(found.model) | {
        "tokens_per_arrival": rounded(found.tokens_per_arrival),
        "per_request_in_flight": None
        if line is None
        else {
            "base_ms": rounded(line.base),
            "ms": rounded(line.slope),
            "ci95": interval_json(line.interval),
            "n": line.n,
        },
    }


def prefill_json(found: PrefillModel | None) -> dict[str, object] | None:
    """Return the model of prefill as JSON's types."""
    return None if found is None else _model_json(found.model) | {"kinds": found.num_kinds}


def _model_json(model: IntervalModel) -> dict[str, object]:
    return {
        "best": model.fits[0].family,
        "verdict": model.verdict,
        "distance": rounded(model.distance),
        "p_value": rounded(model.p_value),
        "n": model.n,
        "families": {
            fit.family: {
                "aic": rounded(fit.aic),
                **{name: rounded(value) for name, value in fit.parameters.items()},
            }
            for fit in model.fits
        },
    }
