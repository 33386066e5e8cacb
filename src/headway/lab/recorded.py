"""A run that was recorded, for comparing it with another: from a raw file, or from what `headway bench --json` printed.

The latter has no records, so its figures have the intervals that stand in it, and some have none.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from headway.core.errors import ConfigError
from headway.lab.distribution import Interval
from headway.lab.estimates import Estimate, latency_estimates, share_estimate
from headway.lab.likeness import Traits, cached_share, unlike
from headway.lab.raw_file import SavedRun, read_raw
from headway.lab.slo import Slo, limits_ms

_PARQUET: Final = b"PAR1"
_MOST_JSON_BYTES: Final = 1 << 24
"""What --json prints are kilobytes."""

_Number = float | Literal["inf"] | None


class _Distribution(msgspec.Struct):
    ci95: dict[str, tuple[_Number, _Number] | None]
    mean: _Number = None
    p50: _Number = None
    p95: _Number = None


class _Rate(msgspec.Struct):
    output_tok_s: float | None


class _Server(msgspec.Struct):
    other_requests: int | None = None


class _Summary(msgspec.Struct):
    """What `lab.summary.as_json` tells, as far as it is compared."""

    offered: int
    ok: int
    goodput: float | None
    ttft_ms: _Distribution
    itl_ms: _Distribution
    tpot_ms: _Distribution
    e2e_ms: _Distribution
    tokens_by: str | None
    rate: _Rate
    output_tokens: int
    server: _Server | None = None


class _Turn(msgspec.Struct):
    offered: int


class _ByCache(msgspec.Struct):
    cached_share: float | None = None


class _Printed(_Summary, kw_only=True):
    """What `headway bench --json` prints."""

    endpoint: str
    model: str
    workload: str
    arrival: str
    seed: int
    max_output_tokens: int
    interrupted: bool
    believable: bool
    slo: dict[str, float] | None = None
    ladder: dict[str, Any] | None = None
    by_turn: list[_Turn] = []
    by_cache: _ByCache | None = None

    @property
    def num_conversations(self) -> int:
        """How many samples its requests are: those of one conversation resemble each other."""
        return self.by_turn[0].offered if self.by_turn else self.offered


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A run for a comparison."""

    path: str
    endpoint: str
    model: str
    traits: Traits
    started_at: datetime | None
    slo_ms: Mapping[str, float] | None
    estimates: Mapping[str, Estimate]
    """By the keys of `estimates.KINDS`, those that the run has."""
    has_records: bool


def read_run(path: str | Path, name: str, seed: int) -> Recorded:
    """Read a run, which sentences will call `name`; `seed`: of its draws. Raises ConfigError for what holds none."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(len(_PARQUET))
            text = b"" if start == _PARQUET else start + file.read(_MOST_JSON_BYTES)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    if start == _PARQUET:
        return _of_records(str(path), name, read_raw(path), seed)
    try:
        printed = msgspec.convert(json.loads(text), type=_Printed)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"{path} holds no run: it is neither of `headway bench --raw` nor of `headway bench --json`."
        ) from error
    return _of_printed(str(path), name, printed)


def comparable(a: Recorded, b: Recorded) -> tuple[Mapping[str, Estimate], Mapping[str, Estimate], list[str]]:
    """Return the figures that can be compared, and what speaks against it in sentences."""
    against = list(unlike(a.traits, b.traits))
    like_slo = a.slo_ms is not None and a.slo_ms == b.slo_ms
    of_a, of_b = (
        {key: estimate for key, estimate in run.estimates.items() if key != "goodput" or like_slo}
        for run in (a, b)
    )
    if len(of_a) + len(of_b) < len(a.estimates) + len(b.estimates):
        against.append("Goodput is left out: the runs had different SLOs.")
    summaries = [run.traits.name for run in (a, b) if not run.has_records]
    if summaries:
        told = " and ".join(summaries)
        against.append(
            f"Of {told} only figures are known, no records: intervals are combined from those of each run."
        )
    return of_a, of_b, against


def _refuse_ladder(path: str, is_ladder: bool) -> None:
    if is_ladder:
        raise ConfigError(
            f"{path} holds a ladder, whose figures are of the rate it found: compare the rates."
        )


def _of_records(path: str, name: str, run: SavedRun, seed: int) -> Recorded:
    try:
        summary = msgspec.convert(run.summary, type=_Summary)
        asked = msgspec.convert(run.asked, type=_Asked)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is damaged: {error}.") from error
    _refuse_ladder(path, any(step is not None for step in run.steps))
    where = asked.endpoint
    kept = [exchange for exchange, left_out in zip(run.exchanges, run.warm_up, strict=True) if not left_out]
    estimates = _shares(summary, len({exchange.conversation for exchange in run.exchanges}))
    return Recorded(
        path=path,
        endpoint=f"{where.host}:{where.port}{where.path}",
        model=run.model,
        traits=_traits(
            name,
            summary,
            {
                "workload": asked.workload,
                "arrival": run.arrival,
                "max_output_tokens": asked.output_tokens,
                "lines": asked.lines,
                "replay": asked.replay,
                "model": run.model,
            },
            believable=run.believable,
            interrupted=run.interrupted,
            cached=cached_share(run.exchanges),
        ),
        started_at=run.started_at,
        slo_ms=None if asked.slo is None else limits_ms(Slo(**asked.slo)),
        estimates=latency_estimates(kept, seed) | estimates,
        has_records=True,
    )


class _Where(msgspec.Struct):
    host: str
    port: int
    path: str


class _Asked(msgspec.Struct):
    """What raw files keep of `RunOptions`, as far as it is compared."""

    endpoint: _Where
    workload: str
    output_tokens: int
    slo: dict[str, int | None] | None
    lines: int | None = None
    replay: dict[str, Any] | None = None


def _of_printed(path: str, name: str, printed: _Printed) -> Recorded:
    of: dict[str, tuple[_Distribution, str]] = {
        "ttft_p50": (printed.ttft_ms, "p50"),
        "ttft_p95": (printed.ttft_ms, "p95"),
        "itl_mean": (printed.itl_ms, "mean"),
        "itl_p50": (printed.itl_ms, "p50"),
        "tpot_p50": (printed.tpot_ms, "p50"),
        "e2e_p50": (printed.e2e_ms, "p50"),
    }
    _refuse_ladder(path, printed.ladder is not None)
    told = {key: _told(distribution, figure) for key, (distribution, figure) in of.items()}
    return Recorded(
        path=path,
        endpoint=printed.endpoint,
        model=printed.model,
        traits=_traits(
            name,
            printed,
            {
                "workload": printed.workload,
                "arrival": printed.arrival,
                "max_output_tokens": printed.max_output_tokens,
                "model": printed.model,
            },
            believable=printed.believable,
            interrupted=printed.interrupted,
            cached=None if printed.by_cache is None else printed.by_cache.cached_share,
        ),
        started_at=None,
        slo_ms=printed.slo,
        estimates={key: estimate for key, estimate in told.items() if estimate is not None}
        | _shares(printed, printed.num_conversations),
        has_records=False,
    )


def _told(distribution: _Distribution, figure: str) -> Estimate | None:
    value, interval = getattr(distribution, figure), distribution.ci95.get(figure)
    if not isinstance(value, float):
        return None
    ends: Interval | None = None
    if interval is not None and isinstance(interval[0], float) and isinstance(interval[1], float):
        ends = min(value, interval[0]), max(value, interval[1])
    return Estimate(value=value, interval=ends)


def _shares(summary: _Summary, num_conversations: int) -> dict[str, Estimate]:
    found = {}
    if summary.rate.output_tok_s is not None:
        found["output_tok_s"] = Estimate(value=summary.rate.output_tok_s)  # a run has but one
    if summary.offered > 0 and num_conversations > 0:
        found["failures"] = share_estimate(summary.offered - summary.ok, summary.offered, num_conversations)
        if summary.goodput is not None:
            num_met = round(summary.goodput * summary.offered)
            found["goodput"] = share_estimate(num_met, summary.offered, num_conversations)
    return found


def _traits(
    name: str,
    summary: _Summary,
    asked: dict[str, Any],
    *,
    believable: bool,
    interrupted: bool,
    cached: float | None,
) -> Traits:
    return Traits(
        name=name,
        asked=asked,
        tokens_by=summary.tokens_by,
        tokens_per_answer=summary.output_tokens / summary.ok if summary.ok else None,
        cached_share=cached,
        num_failed=summary.offered - summary.ok,
        num_offered=summary.offered,
        num_others=None if summary.server is None else summary.server.other_requests,
        believable=believable,
        interrupted=interrupted,
    )
