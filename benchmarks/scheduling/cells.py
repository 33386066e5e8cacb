"""What is measured: a cell for each promise. Each takes a stage and returns the runs that its figures are taken of."""

from collections.abc import Callable
from typing import Any

import engine_overhead
from endpoints.servers import Server
from scheduling.knee import Trial, bracket, next_rate
from scheduling.mix import ITL_MS, OUTPUT_TOKENS, SLO, TENANTS, TTFT_MS
from scheduling.offer import Run
from scheduling.stage import BURST_RATE, PATIENT_MS, Stage

Case = dict[str, Any]
DUE = {"ttft_ms": TTFT_MS, "itl_ms": ITL_MS}
"""The SLO as a request's own, for servers that take it."""

NUM_PAIRS = 3
"""Of runs that are compared with each other."""
_PROMPT, _ANSWER = 128, 16
"""Tokens of a request of one of the tenants that are to be treated alike; the greedy one's are four times as long."""
_TIMES_LONGER, _TIMES_MORE, _USERS = 4, 10, 4

VARIANTS = {
    "fcfs": ("--policy", "fcfs", "--itl-target", "none", "--max-prefill-tokens", "1000000", "--no-prefix-cache"),
    "fcfs, cache": ("--policy", "fcfs", "--itl-target", "none", "--max-prefill-tokens", "1000000"),
    "fcfs, cache, chunks": ("--policy", "fcfs"),
    "slo": ("--policy", "slo"),
}  # fmt: skip


def high(stage: Stage) -> Case:
    """`high` at 30 % of capacity, alone and while all together offer 200 %: the very same requests of `high` both times.

    Some hundred requests differ too much from the next hundred to be compared with them. So there are several pairs, each
    on servers of their own: none has cached what the other was asked.
    """
    capacity, seconds = stage.capacity(), stage.seconds(60)
    runs: dict[str, Run] = {}
    for pair in range(1, NUM_PAIRS + 1):
        urgent = stage.mix(
            0.3 * capacity, seconds, run=pair, group="high", tenants=TENANTS[:2], **{"class": "high"}
        )
        crowd = [
            *stage.mix(0.7 * capacity, seconds, run=pair, group="normal", tenants=TENANTS[2:5]),
            *stage.mix(
                1.0 * capacity, seconds, run=pair, group="low", tenants=TENANTS[5:], **{"class": "low"}
            ),
        ]
        both = {f"alone {pair}": urgent, f"crowded {pair}": [*urgent, *crowd]}
        for name, streams in sorted(both.items(), reverse=pair % 2 == 0):  # now one first, now the other
            with stage.headway() as port:
                runs[name] = stage.offer(port, f"high {name}", streams, seconds, each="high")
    return {"runs": runs, "capacity": capacity}


def fairness(stage: Stage) -> Case:
    """Eight tenants that always have work waiting, one of which sends ten times the requests at four times the length."""
    seconds = stage.seconds(60)
    streams = []
    for number, tenant in enumerate(TENANTS):
        greedy = number == 0
        length = _TIMES_LONGER if greedy else 1
        streams.append(
            {
                "name": tenant,
                "workload": f"context:{_PROMPT * length}",
                "arrival": f"closed:{_USERS * (_TIMES_MORE if greedy else 1)}",
                "output_tokens": _ANSWER * length,
                "duration_s": seconds,
                "tenant": tenant,
                "ttft_ms": PATIENT_MS,
                "seed": number,
            }
        )
    with stage.headway(reads=False) as port:
        return {"runs": {"tenants": stage.offer(port, "tenants", streams, seconds)}, "greedy": TENANTS[0]}


def low(stage: Stage) -> Case:
    """The three classes, each with a third of 200 % of capacity."""
    capacity, seconds = stage.capacity(), stage.seconds(60)
    with stage.headway() as port:
        streams = []
        for service_class, tenants in (
            ("high", TENANTS[:2]),
            ("normal", TENANTS[2:5]),
            ("low", TENANTS[5:]),
        ):
            named = {"group": service_class, "tenants": tenants, "class": service_class}
            # Patient, for refusals would keep high from ever having work waiting.
            streams += stage.mix(2 / 3 * capacity, seconds, ttft_ms=PATIENT_MS, **named)
        return {"runs": {"classes": stage.offer(port, "classes", streams, seconds)}, "capacity": capacity}


def overload(stage: Stage) -> Case:
    """Ten times the knee, every request with the SLO as its deadline."""
    case = stage.known("knee headway")
    rate = case and case["rate"]
    if not rate:
        raise ValueError(
            "overload is offered ten times the knee of Headway, which is not on record: take knee first"
        )
    seconds = stage.seconds(20)
    with stage.headway() as port:
        streams = stage.mix(10 * rate, seconds, **DUE)
        run = stage.offer(port, "ten times the knee", streams, seconds)
    return {"runs": {"overload": run}, "rate": 10 * rate}


def intervals(stage: Stage) -> Case:
    """Four streams that run, while prompts of 4,000 tokens arrive one after another."""
    seconds = stage.seconds(40)
    talking = {
        "name": "running",
        "workload": "light",
        "arrival": "closed:4",
        "output_tokens": 200,
        "duration_s": seconds,
        "tenant": TENANTS[0],
    }
    reading = {
        "name": "long",
        "workload": "context:4000",
        "arrival": "closed:1",
        "output_tokens": 4,
        "duration_s": seconds,
        "tenant": TENANTS[1],
        "ttft_ms": PATIENT_MS,
    }
    with stage.headway(reads=False) as port:
        alone = stage.offer(port, "running alone", [talking], seconds / 2)
        beside = stage.offer(port, "running beside long prompts", [talking | {"skip": 300}, reading], seconds)
    return {"runs": {"alone": alone, "beside": beside}}


def variants(stage: Stage) -> Case:
    """All of capacity, by each of the four ways to schedule."""
    capacity, seconds = stage.capacity(), stage.seconds(20)
    runs = {}
    for name, options in VARIANTS.items():
        with stage.headway(*options) as port:
            runs[name] = stage.offer(port, name, stage.mix(capacity, seconds, **DUE), seconds)
    return {"runs": runs, "capacity": capacity}


def knee(stage: Stage, server: Server | None) -> Case:
    """The highest rate of the mix that keeps the SLO, of another server or, where None, of Headway.

    `broken_rate` None: every rate that was tried kept it.
    """
    runs: dict[str, Run] = {}
    with stage.headway() if server is None else stage.serving(server) as port:
        burst = stage.burst(port, BURST_RATE if server is None else BURST_RATE / 3)
        start = 0.5 * burst["answered_rate"]
        trials: list[Trial] = []
        while start and (rate := next_rate(trials, start)) is not None:
            seconds = stage.seconds(trial_seconds(rate))
            run = stage.offer(port, f"{rate:.2f}/s", stage.mix(rate, seconds, **DUE), seconds)
            trials.append(Trial(rate, keeps_slo(run)))
            runs[f"{rate:.4g}/s"] = run | {"rate": rate, "kept": trials[-1].kept}
    rate, broken = bracket(trials)
    return {"runs": {"burst": burst} | runs, "rate": rate, "broken_rate": broken, "slo": SLO}


def trial_seconds(rate: float) -> float:
    """Return how long a rate is offered: for 100 requests within 20 to 45 seconds, and for 15 at least."""
    return max(20.0, min(45.0, 100 / rate), 15 / rate)


def planning(_: Stage) -> Case:
    """The engine's own part of a step with 256 waiting and 64 running, and of it the plan's."""
    return {"runs": {"engine": engine_overhead.measure_planning(num_waiting=256, num_running=64)}}


def keeps_slo(run: Run) -> bool:
    """Whether 95 of 100 requests met the limit on TTFT, failures among them, and 95 of 100 intervals the one on ITL."""
    ttft_ms = run["all"]["ttft_with_failures_ms"]["p95"]
    itl_ms = run["all"]["itl_ms"]["p95"]
    return isinstance(ttft_ms, float) and ttft_ms <= TTFT_MS and (itl_ms is None or itl_ms <= ITL_MS)


CELLS: dict[str, Callable[[Stage], Case]] = {
    "high": high,
    "fairness": fairness,
    "low": low,
    "overload": overload,
    "intervals": intervals,
    "variants": variants,
    "planning": planning,
}
"""By name, but for `knee`, which is one for each server."""

__all__ = ["CELLS", "OUTPUT_TOKENS", "knee"]
