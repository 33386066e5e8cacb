"""Measures the cases: finds each peer's best settings, then lets all sides take turns.

A peer's process stays up through a case with its model loaded, and is measured once before anything is noted, as its first
call takes twice as long. Headway runs as a process each time. The sides that are not being measured sleep.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from peers.cases import Case, Decode, Prefill, Settings, settings_axes
from peers.driver import Driver, DriverFailed
from peers.headway_perf import HeadwayFailed, perf_arguments, run_perf, tokens_a_second
from peers.machine import BusyMeter, load_average
from peers.places import HEADWAY, Cache
from peers.record import Record
from peers.summary import comparisons, medians, rounds
from peers.sweep import TRIES, AllRefused, sweep

SWEEP_TOKENS = 512
"""Most tokens of context, of all sequences, with which settings are tried: filling 4,000 takes a minute each time."""

_KEPT = ("limits", "efficiency", "settings")


@dataclass(frozen=True, slots=True)
class Bench:
    """What the cases are measured with. `weights` replaces the format of Headway's weights for the cases it names."""

    cache: Cache
    headway: str
    threads: int
    peers: Sequence[str]
    models: Mapping[str, Path]
    weights: Mapping[str, str]
    repeat: int


def measure_case(bench: Bench, case: Case, record: Record) -> None:
    """Measure a case unless the record has it, and save it."""
    repeats = min(bench.repeat, case.most_repeats or bench.repeat)
    if is_done(record.cases.get(case.name), bench.peers, repeats):
        _say(f"{case.name}: on record")
        return
    found: dict[str, Any] = {
        "title": case.title,
        "model": case.model,
        "work": case.work.command,
        "settings": {},
    }
    settings: dict[str, Settings] = found["settings"]
    started = time.monotonic()
    try:
        for peer in bench.peers:
            try:
                settings[peer] = best_settings(bench, case, peer, record)
            except AllRefused as error:
                found["tried"] = {peer: error.tried}
                raise DriverFailed(f"{peer}: {error}") from error
        _say(f"{case.name}: {repeats} rounds")
        started = time.monotonic()
        versions, found["runs"] = _take_turns(bench, case, settings, repeats)
        record.data.setdefault("versions", {}).update(versions)
        found["median"] = {side: round(value, 2) for side, value in medians(found["runs"]).items()}
        found["comparisons"] = comparisons(case, medians(found["runs"]))
    except (HeadwayFailed, DriverFailed) as error:
        found["error"] = str(error)
        _say(f"{case.name}: {error}")
    found["took_s"] = round(time.monotonic() - started)
    record.cases[case.name] = found
    record.save()


def is_done(found: Mapping[str, Any] | None, peers: Sequence[str], repeats: int) -> bool:
    """Tell whether a case's record holds enough runs of every side."""
    if found is None or "error" in found:
        return False
    return all(len(found["runs"].get(side, ())) >= repeats for side in (HEADWAY, *peers))


def best_settings(bench: Bench, case: Case, peer: str, record: Record) -> Settings:
    """Return a peer's best settings for a case, from the record or by a sweep that is then saved."""
    swept = case.swept_by or case.name
    known: dict[str, Any] = record.sweeps.get(swept, {})
    if peer not in known:
        _say(f"{swept}: looking for the best settings of {peer}")
        work, started = sweep_work(case.work), time.monotonic()

        def measure(settings: Settings) -> list[float]:
            try:
                with Driver(bench.cache, peer, bench.models[case.model], bench.threads, settings) as driver:
                    driver.measure(work.command)
                    return [round(work.num_tokens / driver.measure(work.command), 2) for _ in range(TRIES)]
            except DriverFailed as error:
                _say(f"refused {settings}: {error}")
                return []

        best, tried = sweep(settings_axes(case, peer), measure)
        took_s = round(time.monotonic() - started)
        known[peer] = {"work": work.command, "took_s": took_s, "best": best, "tried": tried}
        record.sweeps[swept] = known
        record.save()
    best_known: Settings = known[peer]["best"]
    return best_known


def sweep_work(work: Prefill | Decode) -> Prefill | Decode:
    """Return what is measured to compare settings: the same with less context to fill before."""
    if isinstance(work, Decode):
        return replace(work, context=min(work.context, SWEEP_TOKENS // work.batch))
    return work


def _take_turns(
    bench: Bench, case: Case, settings: Mapping[str, Settings], repeats: int
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return the peers' versions, and by side its runs."""
    runs: dict[str, list[dict[str, Any]]] = {HEADWAY: []}
    model = bench.models[case.model]
    arguments = perf_arguments(case, model, bench.threads, bench.weights.get(case.name, case.weights))
    with ExitStack() as stack:
        drivers = {
            peer: stack.enter_context(Driver(bench.cache, peer, model, bench.threads, chosen))
            for peer, chosen in settings.items()
        }
        for peer, driver in drivers.items():
            driver.measure(case.work.command)
            runs[peer] = []
        for number, side in rounds((HEADWAY, *drivers), repeats):
            busy = BusyMeter()
            if side == HEADWAY:
                report = run_perf(bench.headway, arguments)
                run = {"tok_s": tokens_a_second(case, report)} | {key: report.get(key) for key in _KEPT}
                run["system_fingerprint"] = report.get("model", {}).get("system_fingerprint")
            else:
                seconds = drivers[side].measure(case.work.command)
                run = {"tok_s": round(case.work.num_tokens / seconds, 3), "seconds": round(seconds, 5)}
            run |= {"stolen": busy.stolen(), "load": load_average()}
            runs[side].append(run)
            _say(f"  {number + 1}/{repeats} {side:10} {run['tok_s']:9.2f} tokens/s")
        return {peer: driver.description for peer, driver in drivers.items()}, runs


def describe_cases(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the targets as they were when it was measured."""
    return {case.name: [asdict(target) for target in case.targets] for case in cases}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
