"""What each cell was to show, and whether it did: pure functions from kept runs to a row of the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduling.mix import ITL_MS
from scheduling.offer import percentiles

Case = Mapping[str, Any]
Run = Mapping[str, Any]

SERVERS = {"headway": "Headway", "llama.cpp": "llama-server", "vllm": "vLLM"}


@dataclass(frozen=True, slots=True)
class Claim:
    """One row. `met` None: it is only reported, or the run cannot tell."""

    what: str
    target: str
    measured: str
    met: bool | None


def claims(cases: Mapping[str, Case]) -> list[Claim]:
    """Return a row for each promise whose cell is there, in one order; what failed says so."""
    rows: list[Claim] = []
    for name, make in (
        ("high", _high),
        ("fairness", _fairness),
        ("low", _low),
        ("overload", _overload),
        ("intervals", _intervals),
        ("variants", _variants),
    ):
        rows += make(cases) if "runs" in cases.get(name, {}) else _failed(name, cases)
    rows += _knee(cases)
    rows += _planning(cases) if "runs" in cases.get("planning", {}) else _failed("planning", cases)
    return rows


_WHAT = {
    "high": "`high` at 30 % of capacity while 200 % is offered: admitted; TTFT p95 against alone",
    "fairness": "Jain's index of service between 8 backlogged tenants, one with 10 × the requests at 4 × the length",
    "low": "`low` at 200 %: its share of tokens while all classes are backlogged",
    "overload": "10 × the knee: admitted that meet the SLO; goodput/s against the knee's",
    "intervals": "ITL p99 of running streams while prompts of 4,000 tokens arrive",
    "variants": "TTFT p95 of `slo` against fcfs with cache and chunks, at all of capacity",
    "knee": "highest rate that meets the SLO, against",
    "planning": "the engine's own time per step, 256 waiting, 64 running",
}


def _failed(name: str, cases: Mapping[str, Case]) -> list[Claim]:
    error = cases.get(name, {}).get("error")
    return [Claim(_WHAT[name], "", f"not measured: {error}", None)] if error else []


def _high(cases: Mapping[str, Case]) -> list[Claim]:
    runs = cases["high"]["runs"]
    alone, crowded = (
        [run for name, run in runs.items() if name.startswith(kind)] for kind in ("alone", "crowded")
    )
    found = [run["groups"]["high"] for run in crowded]
    offered = sum(part["offered"] for part in found)
    share = _ratio(sum(part["admitted"] for part in found), offered)
    p95, p95_alone = (_ms_of_each(runs) for runs in (crowded, alone))
    slower = _ratio(p95, p95_alone)
    return [
        Claim(
            _WHAT["high"],
            "≥ 99 %; ≤ 2 ×, aim 1.4 ×",
            f"{_share(share)} of {offered}; {_times(slower)} ({_number(p95)} ms, alone {_number(p95_alone)} ms)",
            _all(share is not None and share >= 0.99, slower is not None and slower <= 2),
        )
    ]


def _ms_of_each(runs: Sequence[Run]) -> float | None:
    """Return the p95 over every TTFT of all `runs`."""
    together = {"ttft_ms": percentiles([ms for run in runs for ms in run["each_ttft_ms"]])}
    return _ms(together, "ttft_ms", "p95")


def _fairness(cases: Mapping[str, Case]) -> list[Claim]:
    case = cases["fairness"]
    found = case["runs"]["tenants"]["sharing"]
    shares = found["service_shares"]
    greedy = shares.get(case["greedy"])
    told = f"; the greedy one got {_share(greedy)}" if greedy is not None else ""
    return [
        Claim(
            _WHAT["fairness"],
            "≥ 0.95",
            f"{_number(found['jain'], 3)} over {found['windows']} windows of {found['window_s']:.0f} s{told}",
            None if found["jain"] is None else found["jain"] >= 0.95,
        )
    ]


def _low(cases: Mapping[str, Case]) -> list[Claim]:
    found = cases["low"]["runs"]["classes"]["sharing"]
    share = found["token_shares"].get("low")
    told = ", ".join(
        f"{name} {_share(found['token_shares'].get(name))}" for name in ("high", "normal", "low")
    )
    return [
        Claim(
            _WHAT["low"],
            "20 % ± 3",
            f"{told} over {found['windows']} windows of {found['window_s']:.0f} s",
            None if share is None else abs(share - 0.2) <= 0.03,
        )
    ]


def _overload(cases: Mapping[str, Case]) -> list[Claim]:
    run = cases["overload"]["runs"]["overload"]
    at_knee = _knee_run(cases.get("knee headway", {}))
    found = run["all"]
    met = _ratio(found["met"], found["admitted"])
    against = _ratio(_goodput_s(run), _goodput_s(at_knee) if at_knee else None)
    return [
        Claim(
            _WHAT["overload"],
            "≥ 95 %; ≥ 90 %",
            f"{_share(met)} of {found['admitted']} admitted of {found['offered']}; {_share(against)}",
            _all(met is not None and met >= 0.95, against is not None and against >= 0.9),
        )
    ]


def _intervals(cases: Mapping[str, Case]) -> list[Claim]:
    runs = cases["intervals"]["runs"]
    beside, alone = runs["beside"]["groups"]["running"], runs["alone"]["all"]
    p99 = _ms(beside, "itl_ms", "p99")
    long = runs["beside"]["groups"]["long"]
    return [
        Claim(
            _WHAT["intervals"],
            f"≤ {1.3 * ITL_MS:.0f} ms (1.3 × {ITL_MS})",
            f"{_number(p99)} ms (alone {_number(_ms(alone, 'itl_ms', 'p99'))} ms); {long['ok']} such prompts, TTFT p50 "
            f"{_number(_ms(long, 'ttft_ms', 'p50'))} ms",
            None if p99 is None else p99 <= 1.3 * ITL_MS,
        )
    ]


def _variants(cases: Mapping[str, Case]) -> list[Claim]:
    runs = cases["variants"]["runs"]
    p95 = {name: _ms(run["all"], "ttft_ms", "p95") for name, run in runs.items()}
    ratio = _ratio(p95.get("slo"), p95.get("fcfs, cache, chunks"))
    told = "; ".join(
        f"{name} {_number(p95[name])} ms, {run['all']['met']} of {run['all']['offered']} met the SLO"
        for name, run in runs.items()
    )
    return [
        Claim(_WHAT["variants"], "≤ 1/2", f"{_times(ratio)}: {told}", None if ratio is None else ratio <= 0.5)
    ]


def _knee(cases: Mapping[str, Case]) -> list[Claim]:
    rates = {name: case["rate"] for name in SERVERS if "rate" in (case := cases.get(f"knee {name}", {}))}
    rows = []
    for name in [name for name in SERVERS if name != "headway" and f"knee {name}" in cases]:
        what = f"{_WHAT['knee']} {SERVERS[name]}, each at its own"
        if "headway" not in rates or name not in rates:
            error = cases.get(f"knee {name}", {}).get("error") or cases.get("knee headway", {}).get("error")
            rows.append(Claim(what, "≥ 2 ×", f"not measured{f': {error}' if error else ''}", None))
            continue
        ours, theirs = rates["headway"], rates[name]
        ratio = _ratio(ours, theirs)
        open_end = theirs is not None and cases[f"knee {name}"].get("broken_rate") is None
        said = f"{_rate(ours)} against {'at least ' if open_end else ''}{_rate(theirs)}"
        reached: bool | None = bool(ours) if theirs is None else ratio is not None and ratio >= 2
        if open_end and reached:
            reached = None  # theirs may be higher than what was tried
        rows.append(Claim(what, "≥ 2 ×", said if ratio is None else f"{_times(ratio)}: {said}", reached))
    return rows


def _planning(cases: Mapping[str, Case]) -> list[Claim]:
    found = cases["planning"]["runs"]["engine"]
    return [
        Claim(
            _WHAT["planning"],
            "planning ≤ 1 ms",
            f"planning {found['plan_us']['p50'] / 1e3:.2f} ms (p99 {found['plan_us']['p99'] / 1e3:.2f}); all but the "
            f"forward pass {found['step_us']['p50'] / 1e3:.2f} ms (p99 {found['step_us']['p99'] / 1e3:.2f})",
            found["plan_us"]["p50"] <= 1_000,
        )
    ]


def _knee_run(case: Case) -> Run | None:
    kept: Sequence[Run] = [run for run in case.get("runs", {}).values() if run.get("kept")]
    return next((run for run in kept if run["rate"] == case.get("rate")), None)


def _goodput_s(run: Run) -> float:
    return float(run["all"]["met"] / run["seconds"])


def _ms(found: Mapping[str, Any], figure: str, name: str) -> float | None:
    value = found[figure][name]
    return value if isinstance(value, int | float) else None  # "inf" and null are no number


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or not under else over / under


def _all(*conditions: bool) -> bool:
    return all(conditions)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} ×"


def _rate(value: float | None) -> str:
    return "no rate" if value is None else f"{value:.2f}/s"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
