"""What `headway perf` prints: a result as a table for people and as JSON. It measures nothing."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Literal

from headway.cli.perf_run import PerfResult
from headway.runner.measure import Phases
from headway.runner.roofline import matmul_ops

_SIZES = (
    "architecture",
    "num_layers",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "ffn_size",
    "vocab_size",
    "num_experts",
    "num_experts_per_token",
)


def as_json(result: PerfResult) -> dict[str, object]:
    """Return the result as JSON's types: medians, then all runs."""
    workload, config, measured, limits = result.workload, result.config, result.measured, result.limits
    report: dict[str, object] = {
        "prefill": {"tokens": workload.prompt_tokens, "tok_s": _rounded(prefill_tok_s(result))},
        "decode": [
            {
                "batch": batch,
                "tok_s": _rounded(decode_tok_s(result, batch)),
                "ms_per_step": _rounded(step_ms(result, batch)),
            }
            for batch in workload.batches
        ],
        "limits": {
            name: _rounded(value) if isinstance(value, float) else value
            for name, value in asdict(limits).items()
        },
        "efficiency": {
            "prefill": _rounded(prefill_share(result)),
            "prefill_of": peak_name(result),
            "decode": _rounded(decode_share(result)),
            "decode_of": "read_gb_s",
        },
    }
    if measured.prefill_phases is not None and measured.decode_phases is not None:
        report["phases"] = {
            "prefill": _phases_json(measured.prefill_phases),
            "decode": [
                {"batch": batch, **_phases_json(phases)} for batch, phases in measured.decode_phases.items()
            ],
        }
    return report | {
        "settings": {
            "prompt_tokens": workload.prompt_tokens,
            "chunk_tokens": workload.chunk_tokens,
            "output_tokens": workload.output_tokens,
            "context": workload.context,
            "batch": list(workload.batches),
            "repeat": workload.repeat,
            "weights": config.weights,
            "group_size": config.group_size,
            "kv": config.kv,
            "block_size": config.block_size,
        },
        "model": {
            "name": config.model,
            "shape": {name: getattr(result.shape, name) for name in _SIZES},
            "weight_bytes": result.weight_bytes,
            "step_weight_bytes": result.step_weight_bytes,
            "kv_token_bytes": result.kv_token_bytes,
            "system_fingerprint": result.system_fingerprint,
            "isa": result.isa,
            "threads": result.threads,
        },
        "runs": {
            "prefill_tok_s": _all_rounded(workload.prompt_tokens / run_s for run_s in measured.prefill_s),
            "decode_ms_per_step": {
                str(batch): _all_rounded(run_s * 1e3 / workload.output_tokens for run_s in runs_s)
                for batch, runs_s in measured.decode_s.items()
            },
            **{name: _all_rounded(runs) for name, runs in asdict(result.limit_runs).items()},
        },
    }


def as_text(result: PerfResult) -> str:
    """Return the result for a terminal."""
    workload, limits, config = result.workload, result.limits, result.config
    rows = [("", "tokens/s", "ms a step", "of the machine")]
    share, peak = prefill_share(result), peak_name(result)
    unit = "GOPS int8" if peak == "int8_gops" else "GFLOPS bf16"
    rows.append(
        (
            f"prefill, {workload.prompt_tokens:,} tokens",
            f"{prefill_tok_s(result):,.1f}",
            "",
            f"{share:.0%} of {getattr(limits, peak):,.0f} {unit}",
        )
    )
    for batch in workload.batches:
        share_read = decode_share(result) if batch == 1 else None
        rows.append(
            (
                f"decode, {batch} sequence{'s' * (batch > 1)}, context {workload.context:,}",
                f"{decode_tok_s(result, batch):,.1f}",
                f"{step_ms(result, batch):,.2f}",
                "" if share_read is None else f"{share_read:.0%} of {limits.read_gb_s:,.1f} GB/s read",
            )
        )
    group = f" in groups of {config.group_size}" if config.weights != "bf16" else ""
    head = (
        f"{config.model}, {result.isa}, {result.threads} thread{'s' * (result.threads > 1)}: weights {config.weights}{group} "
        f"({result.weight_bytes / 1e6:,.0f} MB), KV cache {config.kv}; medians of {workload.repeat}"
    )
    machine = (
        f"the machine: reads {limits.read_gb_s:,.1f} GB/s, int8 {limits.int8_gops:,.0f} GOPS{_source(limits.int8_gops_source)}, "
        f"bf16 {limits.bf16_gflops:,.0f} GFLOPS{_source(limits.bf16_gflops_source)}"
    )
    return "\n".join((head, "", *_table(rows), "", machine, *_phase_lines(result)))


def prefill_tok_s(result: PerfResult) -> float:
    """Return the median of prompt tokens a second."""
    return result.workload.prompt_tokens / statistics.median(result.measured.prefill_s)


def step_ms(result: PerfResult, batch: int) -> float:
    """Return the median of milliseconds a decode step took."""
    return statistics.median(result.measured.decode_s[batch]) * 1e3 / result.workload.output_tokens


def decode_tok_s(result: PerfResult, batch: int) -> float:
    """Return the median of tokens a second, of all sequences together."""
    return batch * 1e3 / step_ms(result, batch)


def peak_name(result: PerfResult) -> Literal["int8_gops", "bf16_gflops"]:
    """Return the limit that the products of these weights have: all but bf16 are multiplied as bytes."""
    return "bf16_gflops" if result.config.weights == "bf16" else "int8_gops"


def prefill_share(result: PerfResult) -> float:
    """Return which share of the peak the prompt's matrix products made of its time."""
    ops = matmul_ops(result.shape, num_tokens=result.workload.prompt_tokens)
    peak: float = getattr(result.limits, peak_name(result))
    return ops / statistics.median(result.measured.prefill_s) / 1e9 / peak


def decode_share(result: PerfResult) -> float | None:
    """Return which share of the read bandwidth one sequence's steps used; None where none was measured."""
    if 1 not in result.workload.batches:
        return None
    return result.decode_bytes / (step_ms(result, 1) / 1e3) / 1e9 / result.limits.read_gb_s


def _source(source: str) -> str:
    return " (on record)" if source == "record" else ""


def _phases_json(phases: Phases) -> dict[str, object]:
    return {
        "step_ms": _rounded(phases.step_ms),
        "phases_ms": {name: _rounded(time_ms) for name, time_ms in phases.phases_ms.items()},
    }


def _phase_lines(result: PerfResult) -> Iterator[str]:
    prefill, decode = result.measured.prefill_phases, result.measured.decode_phases
    if prefill is None or decode is None:
        return
    kinds = {"prefill": prefill} | {f"decode, {batch}": phases for batch, phases in decode.items()}
    yield ""
    rows = [("ms a step", *kinds)]
    for name in prefill.phases_ms:
        rows.append(
            (name.replace("_", " "), *(f"{phases.phases_ms[name]:,.2f}" for phases in kinds.values()))
        )
    rows.append(("all", *(f"{phases.step_ms:,.2f}" for phases in kinds.values())))
    yield from _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        label, *cells = (
            text.ljust(width) if column == 0 or text[-1:].isalpha() and column == 3 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join((label, *cells)).rstrip()


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _all_rounded(values: "Iterator[float] | Sequence[float]") -> list[float]:
    return [float(f"{value:.5g}") for value in values]
