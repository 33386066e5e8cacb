"""What `headway bench` reads beside what a public tool reads of the same servers: AIPerf, in its lightest setting.

    PYTHONPATH=benchmarks .venv/bin/python -m endpoints.public_tool [--rounds 3] [--requests 8]

One stream, prompts of 512 tokens of code, the two tools by turns. They never send the same prompt, which a server would
answer from its cache, but prompts of one length. One of the servers is the lab's null server, whose schedule is known: there
it shows which reading is right. The table goes to docs/lab.md, the raw data to bench/results/.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from endpoints.__main__ import describe
from endpoints.cells import OUTPUT_TOKENS, Cell, rotated
from endpoints.client import BenchFailed, measure
from endpoints.prepare import model_files
from endpoints.process import ServerFailed, leave_on_sigterm, running
from endpoints.servers import MODEL_NAME, TITLES
from headway.cli.options import positive
from headway.lab.code_corpus import CodeCorpus, standard_library
from headway.lab.workload import WorkloadOptions, conversations
from headway.lab.workload_spec import TraceFile, parse_workload
from peers.__main__ import output_of
from peers.environments import SetupFailed, ensure_environment
from peers.lock import Held, only_run
from peers.machine import BusyMeter, describe_machine, load_average
from peers.places import AIPERF, HEADWAY, LLAMA_CPP, RESULTS, ROOT, Cache, default_cache
from peers.render import replace_table

DOCUMENT = ROOT / "docs" / "lab.md"
BEGIN, END = "<!-- public-tool: begin -->", "<!-- public-tool: end -->"

NULL = "null"
TARGETS = (NULL, HEADWAY, LLAMA_CPP)
TARGET_TITLES = TITLES | {NULL: "null server"}
OURS = "headway bench"
TOOLS = (OURS, AIPERF)

WORKLOAD = "context:512"
SCHEDULE_MS = {"ttft_ms": 100.0, "tpot_ms": 20.0}
"""Of the null server: close to what the others take."""

WITHIN = 0.05
_FIRST_SEED = 9000
"""Above those of the comparison."""

_AIPERF_METRICS = {
    "ttft_ms": "time_to_first_token",
    "tpot_ms": "inter_token_latency",
    "e2e_ms": "request_latency",
}
_TIMEOUT_S = 600


def run_ours(headway: str, port: int, requests: int, seed: int) -> dict[str, Any]:
    """Return medians in ms; raises BenchFailed."""
    cell = Cell(workload=WORKLOAD, arrival="closed:1", requests=requests)
    report = measure(headway, port, cell, seed)
    return {"ok": report["ok"], "output_tokens": report["output_tokens"]} | {
        name: report[name]["p50"] for name in _AIPERF_METRICS
    }


def run_aiperf(cache: Cache, port: int, requests: int, seed: int) -> dict[str, Any]:
    """Return medians in ms; raises BenchFailed."""
    models = model_files(cache).bf16_folder
    with tempfile.TemporaryDirectory(prefix="headway-") as name:
        folder = Path(name)
        prompts = folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(requests, seed)))
        command = [str(cache.environment(AIPERF) / "bin" / "aiperf"), *aiperf_options(port, requests)]
        command += ["--input-file", str(prompts), "--output-artifact-dir", str(folder / "out")]
        # By its name alone and from its folder: a path is taken for a name on a hub.
        command += ["--tokenizer", models.name]
        done = subprocess.run(
            command, cwd=models.parent, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
        try:
            report = json.loads((folder / "out" / "profile_export_aiperf.json").read_text())
        except (OSError, ValueError) as error:
            words = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise BenchFailed(f"aiperf, exit code {done.returncode}: {words}") from error
    return read_aiperf(report)


def aiperf_options(port: int, requests: int) -> list[str]:
    """Return its lightest setting: one worker, one record processor, nothing shown, no metrics of server or GPU."""
    return [
        *("profile", "--model", MODEL_NAME, "--url", f"http://127.0.0.1:{port}"),
        *("--endpoint-type", "chat", "--streaming", "--concurrency", "1", "--request-count", str(requests)),
        *("--custom-dataset-type", "single_turn", "--dataset-sampling-strategy", "sequential"),
        *("--use-server-token-count", "--use-legacy-max-tokens"),
        *("--extra-inputs", f"max_tokens:{OUTPUT_TOKENS}", "--extra-inputs", "temperature:0"),
        *("--workers-max", "1", "--record-processors", "1", "--ui", "none"),
        *("--no-server-metrics", "--no-gpu-telemetry"),
    ]


def read_aiperf(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return medians in ms of its `profile_export_aiperf.json`; its ITL is our TPOT."""
    return {
        "ok": round(report["request_count"]["avg"]),
        "output_tokens": round(report["total_output_tokens"]["avg"]),
    } | {name: report[metric]["p50"] for name, metric in _AIPERF_METRICS.items()}


def texts(num: int, seed: int) -> list[str]:
    """Return what `headway bench` would send with this seed."""
    options = WorkloadOptions(seed=seed, output_tokens=OUTPUT_TOKENS)
    workload = parse_workload(WORKLOAD)
    assert not isinstance(workload, TraceFile)
    made = conversations(workload, CodeCorpus(standard_library(), seed), options)
    return [conversation.user_turns[0] for conversation in islice(made, num)]


@contextmanager
def null_server() -> Iterator[int]:
    """Yield the port of a server with `SCHEDULE_MS`."""
    command = [sys.executable, "-m", "headway.lab.null_server", "--tokens", str(OUTPUT_TOKENS)]
    command += ["--ttft-ms", str(SCHEDULE_MS["ttft_ms"]), "--itl-ms", str(SCHEDULE_MS["tpot_ms"])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def take_turns(cache: Cache, args: argparse.Namespace) -> dict[str, Any]:
    """Return by target, by tool the runs."""
    found: dict[str, Any] = {}
    for index, target in enumerate(TARGETS):
        if target == NULL:
            server = null_server()
        else:
            described = describe(target, cache, model_files(cache), args)
            server = running(described, cache.root / f"server-{target}.log")
        runs: dict[str, list[dict[str, Any]]] = {tool: [] for tool in TOOLS}
        with server as port:
            run_ours(args.headway, port, 2, _FIRST_SEED - 1 - index)  # warms it up
            for number in range(args.rounds):
                for tool in rotated(TOOLS, number):
                    seed = _FIRST_SEED + 100 * index + 2 * number + TOOLS.index(tool)
                    busy = BusyMeter()
                    if tool == OURS:
                        run = run_ours(args.headway, port, args.requests, seed)
                    else:
                        run = run_aiperf(cache, port, args.requests, seed)
                    runs[tool].append(
                        {"seed": seed} | run | {"stolen": busy.stolen(), "load": load_average()}
                    )
                    print(f"{target} {tool}: {run}", file=sys.stderr, flush=True)
        found[target] = runs
    return found


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown: a row for each server, medians of the rounds' medians with the smallest and largest."""
    return "\n".join(_lines(data, source))


def _lines(data: Mapping[str, Any], source: str) -> Iterator[str]:
    settings = data["settings"]
    yield (
        f"{data['date']}, {data['machine']['cpu']}, {data['machine']['cores']} cores for server and client; "
        f"{data['aiperf']}, {settings['rounds']} rounds of {settings['requests']} requests by turns. Raw data: `{source}`."
    )
    yield ""
    yield (
        "| ms, p50 | TTFT, `headway bench` | TTFT, AIPerf | AIPerf ÷ ours | TPOT, `headway bench` | TPOT, AIPerf "
        "| AIPerf ÷ ours |"
    )
    yield "|---" * 7 + "|"
    for target, runs in data["targets"].items():
        cells = [cell for figure in SCHEDULE_MS for cell in _compared(runs, figure)]
        truth = (
            f" ({data['schedule_ms']['ttft_ms']:.0f} and {data['schedule_ms']['tpot_ms']:.0f} are true)"
            if target == NULL
            else ""
        )
        yield f"| {TARGET_TITLES[target]}{truth} | " + " | ".join(cells) + " |"


def _compared(runs: Mapping[str, Sequence[Mapping[str, Any]]], figure: str) -> Iterator[str]:
    values = {tool: [run[figure] for run in runs[tool]] for tool in TOOLS}
    for tool in TOOLS:
        each = values[tool]
        yield f"{statistics.median(each):,.1f} ({min(each):,.1f} to {max(each):,.1f})"
    ratio = statistics.median(values[AIPERF]) / statistics.median(values[OURS])
    yield f"{ratio:.2f}" + ("" if abs(ratio - 1) <= WITHIN else ", beyond 5 %")


def main() -> int:
    parser = argparse.ArgumentParser(prog="endpoints.public_tool", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--requests", type=positive, default=8)
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--headway", default=str(ROOT / ".venv/bin/headway"))
    parser.add_argument("--out", type=Path, help="results file (default: today's); --render reads it")
    parser.add_argument("--render", action="store_true", help="measure nothing, write the table of --out")
    args = parser.parse_args()
    leave_on_sigterm()
    date = time.strftime("%Y-%m-%d")
    path = (args.out or RESULTS / f"{date}-public-tool.json").resolve()
    if not args.render:
        try:
            with only_run(args.cache):
                data = measured(Cache(args.cache.absolute()), args, date)
        except (Held, SetupFailed, ServerFailed, BenchFailed, FileNotFoundError) as error:
            sys.exit(str(error))
        path.write_text(json.dumps(data, indent=1) + "\n")
    if path.is_relative_to(ROOT):  # a try elsewhere changes no document
        replace_table(DOCUMENT, render(json.loads(path.read_text()), str(path.relative_to(ROOT))), BEGIN, END)
    return 0


def measured(cache: Cache, args: argparse.Namespace, date: str) -> dict[str, Any]:
    """Make AIPerf's environment, measure, and return what the results file holds."""
    ensure_environment(cache, AIPERF)
    version = output_of([str(cache.environment(AIPERF) / "bin" / "aiperf"), "--version"]).strip()
    return {
        "date": date,
        "machine": describe_machine(),
        "headway": output_of([args.headway, "--version"]).strip(),
        "aiperf": f"AIPerf {version.split()[-1]}",
        "settings": {
            "rounds": args.rounds,
            "requests": args.requests,
            "workload": WORKLOAD,
            "output_tokens": OUTPUT_TOKENS,
            "aiperf_options": aiperf_options(0, args.requests),
        },
        "schedule_ms": SCHEDULE_MS,
        "targets": take_turns(cache, args),
    }


if __name__ == "__main__":
    sys.exit(main())
