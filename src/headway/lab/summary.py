"""What a run's records add up to: the figures that a person reads and scripts rely on. Pure functions over exchanges.

Durations are milliseconds here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.admission import Admission, admission, admission_json
from headway.lab.arrival_table import itl_samples
from headway.lab.breakdown import (
    ByCache,
    Part,
    by_cache,
    by_cache_json,
    by_label,
    by_label_json,
    by_turn,
    by_turn_json,
    prompt_tokens,
)
from headway.lab.by_stream import StreamPart, by_stream, by_stream_json, streams_of
from headway.lab.concurrency import Crowd, InFlight, by_concurrency, by_concurrency_json
from headway.lab.distribution import Distribution, describe
from headway.lab.exchange import Exchange
from headway.lab.figures import Figure, distribution_json, figure, figure_json, interval_json, rounded
from headway.lab.goodput import Goodput, failures, goodput
from headway.lab.latency import due_ns, e2e_ns, lag_ns, tpot_ns, ttft_from_dispatch_ns, ttft_ns
from headway.lab.latency_model import (
    DecodeModel,
    PrefillModel,
    decode_json,
    decode_model,
    prefill_json,
    prefill_model,
)
from headway.lab.prompt_line import PromptLine, prompt_line
from headway.lab.rates import peak_rate
from headway.lab.sharing import Sharing, sharing, sharing_json
from headway.lab.slo import Slo
from headway.lab.tokens import TokenSource, common_source, token_counts
from headway.lab.warm_up import WarmUp, find_warm_up, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run."""

    num_offered: int
    num_ok: int
    num_unsent_turns: int
    """Turns that would have followed one that failed: neither offered nor failed."""
    failures: Mapping[str, int]
    admission: Admission
    warm_up: WarmUp
    """What latencies leave out; counts, rates, lag and goodput leave out nothing."""
    ttft: Figure
    """From the intended start."""
    ttft_from_dispatch: Figure
    tpot: Figure
    e2e: Figure
    itl: Distribution
    """Over tokens of requests that succeeded; its intervals draw whole requests."""
    lag: Distribution
    """How late the client sent, over all requests."""
    token_source: TokenSource | Literal["mixed"] | None
    """What tokens were counted by; None = no token came."""
    connect: Distribution
    """What opening a connection took, of the requests that had to; it is in no latency."""
    duration_s: float
    """From the first intended start to the last end; of several parts together."""
    request_rate: float | None
    """Requests offered per second, from a part's first intended start to its last; None with fewer than two."""
    output_tokens: int
    output_tok_s: float | None
    peak_tok_s: float | None
    goodput: Goodput | None
    """None = there is no SLO."""
    prompt_tokens: Distribution
    """Of requests that succeeded, as usage says; no samples = it does not."""
    by_turn: Mapping[int, Part]
    """Empty where no conversation goes on after its first turn."""
    by_label: Mapping[str, Part]
    """Empty where the workload has one part."""
    by_stream: Mapping[str, StreamPart]
    """Sorted by name; empty where nothing was offered beside it."""
    between_streams: Sharing | None
    """None = there are no two streams."""
    by_cache: ByCache | None
    """None = the server does not say what it had cached."""
    by_concurrency: Sequence[Crowd]
    """In rising order of requests in flight."""
    prompt_line: PromptLine | None
    """None = usage tells too few prompts, or they are all equally long."""
    decode: DecodeModel | None
    """What inter-token intervals follow; None = there are too few."""
    prefill: PrefillModel | None
    """What TTFT follows; None = there are too few requests."""


def summarise(
    exchanges: Sequence[Exchange],
    *,
    slo: Slo | None = None,
    num_unsent_turns: int = 0,
    seek_warm_up: bool = True,
    parts: Sequence[Sequence[Exchange]] | None = None,
) -> Summary:
    """Return the figures of a run's `exchanges`, in any order.

    `parts` are the same in groups that did not follow each other at once, such as steps of a ladder: what lay between them
    is no time of theirs. `seek_warm_up` is for loads that were meant to be steady: stages, steps and traces change by
    design.
    """
    exchanges = sorted(exchanges, key=in_order)
    warm_up = find_warm_up(exchanges) if seek_warm_up else WarmUp()
    kept = [exchange for exchange in exchanges if warm_up.keeps(exchange)]
    kept_ok = [exchange for exchange in kept if exchange.ok]
    ok = [exchange for exchange in exchanges if exchange.ok]
    counts = [token_counts(exchange) for exchange in ok]
    num_tokens = sum(count.total for count in counts)
    parts = [part for part in parts or (exchanges,) if part]
    firsts = [min(map(due_ns, part)) for part in parts]
    duration_ns = sum(
        max(exchange.stamps.ended_ns for exchange in part) - first
        for part, first in zip(parts, firsts, strict=True)
    )
    spread_ns = sum(max(map(due_ns, part)) - first for part, first in zip(parts, firsts, strict=True))
    streams = streams_of(exchanges)
    setups = [exchange.stamps.setup_ns for exchange in exchanges if exchange.stamps.setup_ns]
    return Summary(
        num_offered=len(exchanges),
        num_ok=len(ok),
        num_unsent_turns=num_unsent_turns,
        failures=failures(exchanges),
        admission=admission(exchanges),
        warm_up=warm_up,
        ttft=figure(ttft_ns, kept),
        ttft_from_dispatch=figure(ttft_from_dispatch_ns, kept),
        tpot=figure(tpot_ns, kept),
        e2e=figure(e2e_ns, kept),
        itl=describe(*itl_samples(kept_ok)),  # its intervals draw whole requests
        lag=describe([lag_ns(exchange) / NS_PER_MS for exchange in exchanges]),
        token_source=common_source(counts),
        connect=describe([setup_ns / NS_PER_MS for setup_ns in setups]),
        duration_s=duration_ns / NS_PER_S,
        request_rate=(len(exchanges) - len(parts)) * NS_PER_S / spread_ns if spread_ns else None,
        output_tokens=num_tokens,
        output_tok_s=num_tokens * NS_PER_S / duration_ns if duration_ns else None,
        peak_tok_s=peak_rate(ok),
        goodput=None if slo is None else goodput(slo, exchanges),
        prompt_tokens=prompt_tokens(exchanges),
        by_turn=by_turn(exchanges, warm_up),
        by_label=by_label(exchanges, warm_up),
        by_stream=by_stream(streams, slo),
        between_streams=sharing(streams) if len(streams) > 1 else None,
        by_cache=by_cache(exchanges, warm_up),
        by_concurrency=by_concurrency(exchanges, warm_up),
        prompt_line=prompt_line(kept),
        decode=decode_model(kept_ok, InFlight(exchanges)),
        prefill=prefill_model(kept_ok),
    )


def as_json(summary: Summary) -> dict[str, object]:
    """Return the summary as JSON's types, by the keys of docs/reference.md."""
    good = summary.goodput
    return {
        "offered": summary.num_offered,
        "ok": summary.num_ok,
        "unsent_turns": summary.num_unsent_turns,
        **admission_json(summary.admission),
        "errors": dict(summary.failures),
        "warm_up": {"excluded": summary.warm_up.num_excluded, "steady": summary.warm_up.steady},
        "goodput": None if good is None else good.fraction,
        "ttft_ms": figure_json(summary.ttft),
        "ttft_from_dispatch_ms": figure_json(summary.ttft_from_dispatch),
        "itl_ms": distribution_json(summary.itl),
        "tpot_ms": figure_json(summary.tpot),
        "e2e_ms": figure_json(summary.e2e),
        "lag_ms": distribution_json(summary.lag),
        "connect_ms": distribution_json(summary.connect),
        "tokens_by": summary.token_source,
        "duration_s": rounded(summary.duration_s),
        "rate": {
            "requests_s": rounded(summary.request_rate),
            "output_tok_s": rounded(summary.output_tok_s),
            "peak_tok_s": rounded(summary.peak_tok_s),
        },
        "output_tokens": summary.output_tokens,
        "prompt_tokens": distribution_json(summary.prompt_tokens),
        "by_turn": by_turn_json(summary.by_turn),
        "by_label": by_label_json(summary.by_label),
        "by_stream": by_stream_json(summary.by_stream),
        "between_streams": sharing_json(summary.between_streams),
        "by_cache": by_cache_json(summary.by_cache),
        "by_concurrency": by_concurrency_json(summary.by_concurrency),
        "prompt_line": _line_json(summary.prompt_line),
        "itl_model": decode_json(summary.decode),
        "ttft_model": prefill_json(summary.prefill),
    }


def _line_json(line: PromptLine | None) -> dict[str, object] | None:
    if line is None:
        return None
    return {
        "base_ms": rounded(line.base_ms),
        "ms_per_1k": rounded(line.ms_per_1k),
        "ci95": interval_json(line.interval),
        "n": line.n,
    }
