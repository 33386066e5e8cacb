"""What this machine can do at most: int8 and float arithmetic, reading memory. Measured beside what is compared with it.

The peak of a quiet moment is kept on record, by processor and threads, for neighbours may slow the machine down for a whole
run. It knows no model.
"""

import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headway import _native

RUN_S = 0.03
"""Of one run of arithmetic: longer than a time slice, shorter than what it interrupts."""

RECORD_SHARE = 0.95
"""A run whose best is below this share of the record was disturbed: the record is used."""

READ_BYTES = 1 << 30
"""Read by one run: more than the caches of any processor hold."""

BF16_DOTS_ISA = "avx512bf16"
"""The instruction set whose `bf16_gflops` are of bfloat16 dot products; `f32_gflops` are those of the one below it, which
multiplies float32 alike."""
_BELOW_BF16_DOTS = "avx512"

PeakName = Literal["int8_gops", "bf16_gflops", "f32_gflops"]
_PEAKS: tuple[PeakName, ...] = ("int8_gops", "bf16_gflops", "f32_gflops")

Source = Literal["measured", "record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Rates in 10^9 a second; a multiply and an add count as two operations."""

    read_gb_s: float
    int8_gops: float
    bf16_gflops: float
    """Of bfloat16 dot products where the instruction set has them, else of float32 multiply-adds."""
    f32_gflops: float
    """Of float32 multiply-adds."""
    int8_gops_source: Source = "measured"
    bf16_gflops_source: Source = "measured"
    f32_gflops_source: Source = "measured"


@dataclass(slots=True)
class LimitRuns:
    """All that was measured, run by run, in 10^9 a second."""

    read_gb_s: list[float] = field(default_factory=list)
    int8_gops: list[float] = field(default_factory=list)
    bf16_gflops: list[float] = field(default_factory=list)
    f32_gflops: list[float] = field(default_factory=list)

    def best(self) -> Limits:
        """Return the best of each; at least one run must have been made."""
        return Limits(
            read_gb_s=max(self.read_gb_s),
            int8_gops=max(self.int8_gops),
            bf16_gflops=max(self.bf16_gflops),
            f32_gflops=max(self.f32_gflops),
        )


class LimitMeter:
    """Measures; `run` as often as wished, between other measurements. Owns threads and memory of its own."""

    def __init__(self, *, isa: str, threads: int, num_bytes: int = READ_BYTES) -> None:
        self._native = _native.MachineLimits(isa=isa, threads=threads, num_bytes=num_bytes)
        self._float32 = (
            _native.MachineLimits(isa=_BELOW_BF16_DOTS, threads=threads, num_bytes=1)
            if isa == BF16_DOTS_ISA
            else None
        )
        self.runs = LimitRuns()

    def run(self, run_s: float = RUN_S) -> None:
        """Measure each limit once; takes two or three times `run_s` and one read of the memory."""
        self.runs.int8_gops.append(self._native.int8_ops_per_s(run_s) / 1e9)
        self.runs.read_gb_s.append(self._native.read_bytes_per_s() / 1e9)
        self.runs.bf16_gflops.append(self._native.float_ops_per_s(run_s) / 1e9)
        if self._float32 is None:
            self.runs.f32_gflops.append(self.runs.bf16_gflops[-1])
        else:
            self.runs.f32_gflops.append(self._float32.float_ops_per_s(run_s) / 1e9)


def with_record(measured: Limits, record: Mapping[str, float]) -> Limits:
    """Return the limits to compare with: of each peak the record where the measured one falls short of it."""
    judged = {name: _judge(getattr(measured, name), record.get(name)) for name in _PEAKS}
    return Limits(
        read_gb_s=measured.read_gb_s,
        int8_gops=judged["int8_gops"][0],
        bf16_gflops=judged["bf16_gflops"][0],
        f32_gflops=judged["f32_gflops"][0],
        int8_gops_source=judged["int8_gops"][1],
        bf16_gflops_source=judged["bf16_gflops"][1],
        f32_gflops_source=judged["f32_gflops"][1],
    )


def _judge(measured: float, record: float | None) -> tuple[float, Source]:
    if record is None or measured >= RECORD_SHARE * record:
        return measured, "measured"
    return record, "record"


def record_key(*, isa: str, threads: int) -> str:
    """Name this processor, the instruction set and the threads."""
    return f"{processor_model()}, {isa}, {threads} threads"


def processor_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name this processor's model: with family, model and stepping, as virtual machines tell only "AMD EPYC"."""
    try:
        first = cpuinfo.read_text().split("\n\n", 1)[0]
    except OSError:
        return platform.machine()
    found = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*:\s*(.*?)\s*$", first, re.MULTILINE))
    numbers = "/".join(found.get(name, "?") for name in ("cpu family", "model", "stepping"))
    return f"{found.get('model name', platform.machine())} {numbers}"


def read_record(path: Path, key: str) -> Mapping[str, float]:
    """Return the highest peaks on record under `key`; nothing if there are none, or the file is not ours."""
    peaks = _read(path).get(key)
    if not isinstance(peaks, dict):
        return {}
    return {name: value for name, value in peaks.items() if isinstance(value, float) and value < float("inf")}


def raise_record(path: Path, key: str, measured: Limits) -> None:
    """Put the peaks on record that are higher than what is there. What cannot be written is not."""
    old = read_record(path, key)
    new = {name: max(getattr(measured, name), old.get(name, 0.0)) for name in _PEAKS}
    if new == dict(old):
        return
    text = json.dumps(_read(path) | {key: new}, indent=2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError:
        return


def _read(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
