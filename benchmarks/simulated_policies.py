"""Scheduling policies side by side, simulated: `make bench-policies` [BENCH_ARGS="--device h100-sxm --markdown"].

Two tables, each at 90 % and 120 % of what the machine can do (the rate at which twice as many users as it has slots are
served first come, first served):

answers   prompts of 512 tokens whose answers are at most 16, 64, 256 or 1,024 tokens, in equal numbers (row S1)
contexts  prompts of 64, 512 and 2,048 tokens with answers of 64 (row E5)

For each policy and kind of request: median and P95 of TTFT, median of E2E, how many were refused; and the throughput of all.
Prints one JSON object, or tables in Markdown with `--markdown`.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headway.cli.simulation_options import SimulatedModel, open_model
from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.config import PolicyName, SchedulerConfig
from headway.lab.distribution import percentile
from headway.lab.exchange import Exchange
from headway.lab.latency import e2e_ns, ttft_ns
from headway.lab.run_options import RunOptions
from headway.simulator.devices import find_device
from headway.simulator.loader import Service
from headway.simulator.roofline import RooflineCost
from headway.simulator.simulation import records, simulated_endpoint

POLICIES: tuple[PolicyName, ...] = ("fcfs", "shortest", "bucketed", "slo")
LOADS = (0.9, 1.2)
ANSWERS = (16, 64, 256, 1024)
PROMPT_TOKENS = 512
CONTEXTS = "context:64,512,2048:repeat"


def trace_of_answers(path: Path, rate: float, count: int, seed: int) -> None:
    """Write a trace in BurstGPT's form: Poisson arrivals, each with one of the answers' lengths."""
    draw = random.Random(seed)
    lines = ["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"]
    at_s = 0.0
    for number in range(count):
        tokens = ANSWERS[number % len(ANSWERS)]
        lines.append(
            f"{at_s:.6f},max {tokens},{PROMPT_TOKENS},{tokens},{PROMPT_TOKENS + tokens},Conversation log"
        )
        at_s += draw.expovariate(rate)
    path.write_text("\n".join(lines) + "\n")


def row(label: str, exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """Return the figures of some requests."""
    ok = [exchange for exchange in exchanges if exchange.ok]
    ttft, e2e = ([figure(exchange) or 0 for exchange in ok] for figure in (ttft_ns, e2e_ns))
    return {
        "kind": label,
        "requests": len(exchanges),
        "refused": len(exchanges) - len(ok),
        "ttft_p50_ms": _percentile_ms(ttft, 0.5),
        "ttft_p95_ms": _percentile_ms(ttft, 0.95),
        "e2e_p50_ms": _percentile_ms(e2e, 0.5),
    }


def _percentile_ms(values_ns: Sequence[int], share: float) -> float | None:
    if not values_ns:
        return None
    return round(percentile(np.sort(np.asarray(values_ns, dtype=np.float64)), share) / NS_PER_MS, 1)


def duration_s(exchanges: Sequence[Exchange]) -> float:
    """Return the time from the first start to the last end."""
    first = min(exchange.stamps.intended_ns for exchange in exchanges)
    return (max(exchange.stamps.ended_ns for exchange in exchanges) - first) / NS_PER_S


def figures(exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """Return the figures of each kind, and of all."""
    labels = sorted({e.label for e in exchanges}, key=lambda label: int(label.split()[-1].split(":")[-1]))
    num_tokens = sum(len(exchange.answer.events) for exchange in exchanges)
    return {
        "output_tok_s": round(num_tokens / duration_s(exchanges), 1),
        "kinds": [
            row("all", exchanges),
            *(row(label, [e for e in exchanges if e.label == label]) for label in labels),
        ],
    }


class Table:
    """One table: the same requests for every policy."""

    def __init__(self, args: argparse.Namespace, model: SimulatedModel, folder: Path) -> None:
        whole, device = find_device(args.device)
        assert model.shape is not None
        cost = RooflineCost(device=device, shape=model.shape)
        self._args, self._model, self._folder = args, model, folder
        self._service = Service(name=model.name, runner=cost.runner_info(), step=cost, machine=whole)

    def capacity(self, kind: str) -> float:
        """Return requests a second, first come, first served."""
        users = 2 * self._args.max_num_seqs
        exchanges = self._run("fcfs", self._options(kind, None, f"closed:{users}"))
        return len(exchanges) / duration_s(exchanges)

    def at(self, kind: str, rate: float) -> dict[str, Any]:
        """Return each policy's figures at a rate."""
        return {name: figures(self._run(name, self._options(kind, rate, None))) for name in POLICIES}

    def _options(self, kind: str, rate: float | None, closed: str | None) -> RunOptions:
        args = self._args
        if kind == "answers":
            path = self._folder / f"{kind}-{rate}.csv"
            trace_of_answers(path, rate or 1.0, args.requests, args.seed)
            workload, arrival, tokens = f"trace:{path}", closed, 128
        else:
            workload, arrival, tokens = CONTEXTS, closed or f"poisson:{rate:.4g}", 64
        return RunOptions(
            endpoint=simulated_endpoint(args.device),
            workload=workload,
            arrival=arrival,
            num_requests=args.requests,
            output_tokens=tokens,
            seed=args.seed,
        )

    def _run(self, policy: PolicyName, options: RunOptions) -> list[Exchange]:
        limits = SchedulerConfig(
            policy=policy, max_draft_tokens=0, max_num_seqs=self._args.max_num_seqs, max_prefill_tokens=2048
        )
        service = replace(self._service, scheduler=limits)
        return records(options, service, self._model.prompts, count_tokens=self._model.count_tokens)


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """Yield the tables' lines."""
    for kind, loads in report["tables"].items():
        for load, policies in loads["loads"].items():
            yield f"{kind}, {float(load):.0%} of {loads['capacity']:.3g} requests/s, ms:"
            yield ""
            yield "| policy | tokens/s | requests | TTFT p50 | TTFT p95 | E2E p50 | refused |"
            yield "|---|---|---|---|---|---|---|"
            for name, found in policies.items():
                for each in found["kinds"]:
                    rate = f"{found['output_tok_s']:,.0f}" if each["kind"] == "all" else ""
                    times = (each[key] for key in ("ttft_p50_ms", "ttft_p95_ms", "e2e_p50_ms"))
                    told = " | ".join("–" if time is None else f"{time:,.0f}" for time in times)
                    yield f"| {name} | {rate} | {each['kind']} | {told} | {each['refused']} of {each['requests']} |"
            yield ""


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="shape:llama-3-8b")
    parser.add_argument("--device", default="a100-80g")
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", action="store_true", help="tables instead of JSON")
    parser.add_argument("--output", type=Path, help="keep the JSON object")
    args = parser.parse_args()
    model = open_model(args.model)
    settings = {name: getattr(args, name) for name in ("model", "device", "requests", "max_num_seqs", "seed")}
    report: dict[str, Any] = {"settings": settings, "tables": {}}
    with tempfile.TemporaryDirectory() as folder:
        table = Table(args, model, Path(folder))
        for kind in ("answers", "contexts"):
            capacity = table.capacity(kind)
            report["tables"][kind] = {
                "capacity": capacity,
                "loads": {str(load): table.at(kind, load * capacity) for load in LOADS},
            }
    if args.output is not None:
        args.output.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(markdown(report)) if args.markdown else json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
