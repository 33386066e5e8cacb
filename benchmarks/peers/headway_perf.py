"""Headway's side, through its command line: one process of `headway perf` a run, which warms up by itself."""

import json
import subprocess
from pathlib import Path
from typing import Any

from peers.cases import Case, Decode, Prefill

SHORT_PROMPT = 16
"""Where only decoding counts: `perf` always measures a prompt, too."""


class HeadwayFailed(Exception):
    """The command refused or crashed; its last line is the message."""


def perf_arguments(case: Case, model: Path, threads: int, weights: str) -> list[str]:
    """Return the arguments of one run."""
    match case.work:
        case Prefill(tokens):
            sizes = {"--prompt-tokens": tokens, "--context": SHORT_PROMPT, "--batch": 1, "--output-tokens": 1}
        case Decode(batch, context, tokens):
            sizes = {
                "--prompt-tokens": SHORT_PROMPT,
                "--context": context,
                "--batch": batch,
                "--output-tokens": tokens,
            }
    options = sizes | {"--threads": threads, "--weights": weights, "--kv": case.kv, "--repeat": 1}
    return ["perf", str(model), *(str(part) for pair in options.items() for part in pair), "--json"]


def run_perf(headway: str, arguments: list[str]) -> dict[str, Any]:
    """Run `headway perf` and return what it printed; raises HeadwayFailed."""
    done = subprocess.run([headway, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise HeadwayFailed(words[-1] if words else f"exit code {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def tokens_a_second(case: Case, report: dict[str, Any]) -> float:
    """Return the figure of the report that the case is about."""
    match case.work:
        case Prefill():
            value: float = report["prefill"]["tok_s"]
        case Decode(batch, _, _):
            (value,) = (row["tok_s"] for row in report["decode"] if row["batch"] == batch)
    return value
