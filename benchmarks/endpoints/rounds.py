"""The measurement: rounds in which every server in turn answers every cell, alone on the machine."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endpoints.cells import Cell, at_most, rotated, seed
from endpoints.client import BenchFailed, measure
from endpoints.process import ServerFailed, count_prompt_tokens, running
from endpoints.servers import TITLES, Server
from peers.machine import BusyMeter, load_average
from peers.record import Record

WARM_UP = (
    Cell(workload="light", arrival="closed:8", requests=8),
    Cell(workload="medium", arrival="closed:1", requests=1),
)
_WARM_UP_SEED = 500
"""Plus the round: below every cell's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run: `headway` is the command that measures, `logs` the folder of the servers' logs."""

    headway: str
    servers: Mapping[str, Server]
    cells: Sequence[Cell]
    rounds: int
    most_requests: int | None
    logs: Path


def take_rounds(plan: Plan, record: Record) -> None:
    """Measure what is not on record, saving after every cell; raises ServerFailed."""
    for number in range(plan.rounds):
        for name in rotated(tuple(plan.servers), number):
            missing = [cell for cell in plan.cells if not is_done(record, cell, name, number)]
            if missing:
                _serve(plan, record, name, number, missing)


def is_done(record: Record, cell: Cell, server: str, number: int) -> bool:
    """Tell whether the record has a run without an error of this round."""
    runs = record.cases.get(cell.name, {}).get("runs", {}).get(server, ())
    return any(run["round"] == number and "error" not in run for run in runs)


def _serve(plan: Plan, record: Record, name: str, number: int, cells: Sequence[Cell]) -> None:
    server = plan.servers[name]
    _say(f"round {number + 1}/{plan.rounds}: starting {TITLES[name]}")
    with running(server, plan.logs / f"server-{name}.log") as port:
        record.data.setdefault("prompt_tokens", {})[name] = count_prompt_tokens(port)
        for cell in WARM_UP:
            _measure(plan, port, at_most(cell, plan.most_requests), _WARM_UP_SEED + number)
        for cell in cells:
            busy = BusyMeter()
            run = _measure(plan, port, at_most(cell, plan.most_requests), seed(cell, number))
            note(
                record,
                cell,
                name,
                {"round": number} | run | {"stolen": busy.stolen(), "load": load_average()},
            )
            record.save()
            _say(f"  {TITLES[name]:12} {cell.name:24} {_told(run)}")


def _measure(plan: Plan, port: int, cell: Cell, with_seed: int) -> dict[str, Any]:
    asked = {"seed": with_seed, "requests": cell.requests}
    try:
        return asked | measure(plan.headway, port, cell, with_seed)
    except BenchFailed as error:
        return asked | {"error": str(error)}


def note(record: Record, cell: Cell, server: str, run: dict[str, Any]) -> None:
    """Put a run into the record, in place of one of the same round."""
    case = record.cases.setdefault(
        cell.name,
        {
            "title": cell.title,
            "workload": cell.workload,
            "arrival": cell.arrival,
            "turn": cell.turn,
            "runs": {},
        },
    )
    others = [known for known in case["runs"].get(server, ()) if known["round"] != run["round"]]
    case["runs"][server] = sorted([*others, run], key=lambda one: one["round"])


def _told(run: Mapping[str, Any]) -> str:
    if "error" in run:
        return f"failed: {run['error']}"
    failed = f", {run['offered'] - run['ok']} failed" if run["ok"] < run["offered"] else ""
    return f"TTFT {_ms(run['ttft_ms']['p50'])}, TPOT {_ms(run['tpot_ms']['p50'])}, {run['duration_s']:.0f} s{failed}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


__all__ = ["Plan", "ServerFailed", "is_done", "note", "take_rounds"]
