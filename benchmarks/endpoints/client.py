"""Runs `headway bench` and keeps what its object says that so few requests can tell."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from endpoints.cells import OUTPUT_TOKENS, Cell
from endpoints.servers import MODEL_NAME

TIMEOUT_S = 600
_FIGURES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "lag_ms")
_PERCENTILES = ("p50", "p95", "mean", "n")
_PLAIN = (
    "interrupted", "believable", "offered", "ok", "unsent_turns", "errors", "tokens_by", "duration_s", "rate",
    "output_tokens",
)  # fmt: skip


class BenchFailed(Exception):
    """`headway bench` ended without figures."""


def measure(headway: str, port: int, cell: Cell, seed: int) -> dict[str, Any]:
    """Measure the server on a port and return what is kept of it; raises BenchFailed."""
    command = [headway, "bench", f"http://127.0.0.1:{port}", "--json", "--model", MODEL_NAME]
    command += ["--workload", cell.workload, "--arrival", cell.arrival, "--requests", str(cell.requests)]
    command += ["--output-tokens", str(OUTPUT_TOKENS), "--seed", str(seed)]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        report: Any = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        words = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise BenchFailed(words[-1]) from error
    except subprocess.TimeoutExpired as error:
        raise BenchFailed(f"not done after {TIMEOUT_S} s") from error
    except ValueError as error:
        raise BenchFailed(f"no JSON: {error}") from error
    return kept(report)


def kept(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without what was asked for and what intervals and tails of few samples would say."""
    found = {name: report[name] for name in _PLAIN} | _figures(report)
    if by_turn := report.get("by_turn"):
        found["by_turn"] = [
            {name: one.get(name) for name in ("turn", "n", "cached_share")} | _figures(one) for one in by_turn
        ]
    return found


def _figures(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {key: report[name].get(key) for key in _PERCENTILES} for name in _FIGURES if name in report}
