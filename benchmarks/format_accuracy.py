"""How far the demo model in one runtime format is from itself in float32 (tests/data/smollm2/accuracy.json).

Two texts: 2,000 tokens of Python, of which the reference has every token's negative log-likelihood (NLL), and 20 greedy
continuations of 32 tokens, of which it has the eight largest logits of each step. It knows no model files and no engine.
"""

import json
import math
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.runner.native_runner import NativeRunner
from headway.runner.step import OutputKind, Step

REFERENCES = Path(__file__).parents[1] / "tests" / "data" / "smollm2" / "accuracy.json"
CONTEXT_TOKENS = 2_000
"""The longest text; what `deviations` needs room for in the KV cache."""
CHUNK_TOKENS = 250
"""Rows of logits per step: 49 MB of the demo model's."""

FloatArray = npt.NDArray[np.float64]


def deviations(runner: NativeRunner) -> dict[str, Any]:
    """Return what `compare_nll` and `compare_greedy` find against the stored references."""
    references = json.loads(REFERENCES.read_text())
    source = references["source"]
    return compare_nll(token_nll(runner, source["tokens"]), np.array(source["nll"])) | compare_greedy(
        runner, references["greedy"]
    )


def compare_nll(ours: FloatArray, reference: FloatArray) -> dict[str, Any]:
    """Return the mean NLL of both `(num_tokens,)`, the relative deviation, and that one's standard error.

    The error is of the mean of the tokens' differences: a deviation of less than two of it says little.
    """
    mean, expected = float(ours.mean()), float(reference.mean())
    error = float((ours - reference).std(ddof=1)) / math.sqrt(len(ours))
    return {
        "num_tokens": len(ours),
        "nll": round(mean, 5),
        "reference_nll": round(expected, 5),
        "deviation": round(mean / expected - 1, 6),
        "deviation_error": round(error / expected, 6),
    }


def compare_greedy(runner: NativeRunner, cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Follow the reference's continuations; return how often our likeliest token is its own, and how far logits are off.

    Teacher-forced: every step sees the reference's text, so that one near tie does not decide the steps after it.
    """
    same: list[bool] = []
    errors: list[float] = []
    for case in cases:
        tokens = [*case["prompt"], *case["continuation"][:-1]]
        rows = range(len(case["prompt"]) - 1, len(tokens))
        logits = np.concatenate(list(logits_of(runner, tokens, rows)))
        ours = np.take_along_axis(logits, np.array(case["top_ids"]), axis=1)
        errors += np.abs(ours - np.array(case["top_logits"], np.float32)).max(axis=1).tolist()
        same += (logits.argmax(axis=1) == case["continuation"]).tolist()
    return {
        "greedy_tokens": len(same),
        "greedy_same": sum(same),
        "max_logit_error": round(max(errors), 4),
        "mean_logit_error": round(float(np.mean(errors)), 4),
    }


def token_nll(runner: NativeRunner, tokens: Sequence[int]) -> FloatArray:
    """Return the NLL `(len(tokens) - 1,)` of every token but the first."""
    found: list[FloatArray] = []
    start = 1
    for logits in logits_of(runner, tokens[:-1], range(len(tokens) - 1)):
        wanted = tokens[start : start + len(logits)]
        start += len(logits)
        largest = logits.max(axis=1)
        log_sums = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1, dtype=np.float64))
        found.append(log_sums - logits[np.arange(len(logits)), wanted])
    return np.concatenate(found)


def logits_of(
    runner: NativeRunner, tokens: Sequence[int], rows: range
) -> Iterator["npt.NDArray[np.float32]"]:
    """Yield logits `(chunk, vocab_size)` at the positions `rows` of one sequence, which begins at block 0."""
    info = runner.info
    for start in range(0, len(tokens), CHUNK_TOKENS):
        chunk = tokens[start : start + CHUNK_TOKENS]
        num_blocks = -(-(start + len(chunk)) // info.block_size)
        output_rows = [row - start for row in rows if start <= row < start + len(chunk)]
        step = Step(
            tokens=array("i", chunk),
            positions=array("i", range(start, start + len(chunk))),
            sequence_starts=array("i", [0, len(chunk)]),
            context_lens=array("i", [start]),
            block_table=array("i", range(num_blocks)),
            block_table_starts=array("i", [0, num_blocks]),
            adapter_ids=array("i", [0]),
            output_rows=array("i", output_rows),
            output_kinds=array("i", [OutputKind.LOGITS] * len(output_rows)),
            sampling=None,
        )
        yield np.frombuffer(runner.forward(step), np.float32).reshape(-1, info.vocab_size)
