"""What `headway perf` prints: a result as a table for people and as JSON. It measures nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from types import MappingProxyType

from headway.cli.inspect_report import SHAPE_SIZES
from headway.cli.perf_result import PerfResult
from headway.cli.table import aligned
from headway.runner.machine_limits import BF16_DOTS_ISA, PeakName
from headway.runner.measure import Phases

_PEAK_UNITS: Mapping[PeakName, str] = MappingProxyType(
    {"int8_gops": "GOPS in int8", "bf16_gflops": "GFLOPS in bf16", "f32_gflops": "GFLOPS in float32"}
)


def as_json(result: PerfResult) -> dict[str, object]:
    """Return the result as JSON's types: medians, then all runs."""
    workload, config, measured, limits = result.workload, result.config, result.measured, result.limits
    report: dict[str, object] = {
        "prefill": {"tokens": workload.prompt_tokens, "tok_s": _rounded(result.prefill_tok_s)},
        "decode": [
            {
                "batch": batch,
                "tok_s": _rounded(result.decode_tok_s(batch)),
                "ms_per_step": _rounded(result.step_ms(batch)),
            }
            for batch in workload.batches
        ],
        "limits": {
            name: _rounded(value) if isinstance(value, float) else value
            for name, value in asdict(limits).items()
        },
        "efficiency": {
            "prefill": _rounded(result.prefill_share),
            "prefill_of": result.peak_name,
            "decode": _rounded(result.decode_share),
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
            "activations": config.activations,
            "kv": config.kv,
            "block_size": config.block_size,
        },
        "model": {
            "name": config.model,
            "shape": {name: getattr(result.shape, name) for name in ("architecture", *SHAPE_SIZES)},
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
    rows.append(
        (
            f"prefill, {workload.prompt_tokens:,} tokens",
            f"{result.prefill_tok_s:,.1f}",
            "-",
            f"{result.prefill_share:.0%} of {_peak(result, result.peak_name)}",
        )
    )
    for batch in workload.batches:
        share_read = result.decode_share if batch == 1 else None
        rows.append(
            (
                f"decode, {batch} sequence{'s' * (batch > 1)}, context {workload.context:,}",
                f"{result.decode_tok_s(batch):,.1f}",
                f"{result.step_ms(batch):,.2f}",
                "-" if share_read is None else f"{share_read:.0%} of the reading beside it",
            )
        )
    group = f" in groups of {config.group_size}"
    if config.weights == "bf16":
        group = " and activations bf16" if config.activations == "bf16" else ""
    threads = f"{result.threads} thread{'s' * (result.threads > 1)}"
    head = (
        f"{config.model}, weights {config.weights}{group} ({result.weight_bytes / 1e6:,.0f} MB), KV cache {config.kv}, "
        f"{result.isa}, {threads}; medians of {workload.repeat}"
    )
    peaks: list[PeakName] = ["int8_gops", "f32_gflops"]
    if result.isa == BF16_DOTS_ISA:
        peaks.insert(1, "bf16_gflops")
    machine = f"The machine reads {limits.read_gb_s:,.1f} GB/s and does {', '.join(_peak(result, name) for name in peaks)}."
    none = "-: no figure; a prompt may take several steps, and only one sequence's are compared with the reading."
    return "\n".join((head, "", *aligned(rows, "<>><"), none, "", machine, *_phase_lines(result)))


def _peak(result: PerfResult, name: PeakName) -> str:
    """Return a peak in words, with what it was in this run where the one on record is used."""
    peak = f"{getattr(result.limits, name):,.0f} {_PEAK_UNITS[name]}"
    if getattr(result.limits, f"{name}_source") == "measured":
        return peak
    return f"{peak} (on record; {max(getattr(result.limit_runs, name)):,.0f} now)"


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
    rows = [
        ("ms a step", *kinds),
        *(
            (name.replace("_", " "), *(f"{phases.phases_ms[name]:,.2f}" for phases in kinds.values()))
            for name in prefill.phases_ms
        ),
        ("all", *(f"{phases.step_ms:,.2f}" for phases in kinds.values())),
    ]
    yield from aligned(rows, "<" + ">" * len(kinds))


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _all_rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
