"""Machines by name: what their makers publish, dense and without overclocking. Data only.

Operations are a multiply and an add each; NVIDIA's data sheets give most figures with 2:4 sparsity, which is halved here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headway.core.errors import ConfigError

T = 10**12
G = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One machine, or one accelerator of it.

    bf16_ops      operations a second in bf16, dense
    int8_ops      the same in int8
    read_bytes    bytes a second from its memory
    memory_bytes  what its memory holds; None = as much as is built in
    launch_s      what a step takes however small it is
    """

    bf16_ops: float
    int8_ops: float
    read_bytes: float
    memory_bytes: int | None
    launch_s: float


_GPU_LAUNCH_S = 2e-3
"""A step's preparation on the host, its launch as one graph and the tokens' way back. An assumption: engines in Python tell
of one to several milliseconds a step."""
_CPU_LAUNCH_S = 2e-4
"""Headway's own Python and the hand-over to its threads (benchmarks/engine_overhead.py: 40 to 300 microseconds)."""


def _gpu(*, bf16: float, int8: float, read: float, memory_gb: int) -> Device:
    return Device(
        bf16_ops=bf16 * T,
        int8_ops=int8 * T,
        read_bytes=read * G,
        memory_bytes=memory_gb * G,
        launch_s=_GPU_LAUNCH_S,
    )


DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        # NVIDIA A10 data sheet (2021): 125 TFLOPS in bf16, 250 TOPS in int8, GDDR6 600 GB/s, 24 GB.
        "a10": _gpu(bf16=125, int8=250, read=600, memory_gb=24),
        # NVIDIA L4 data sheet (2023): 242 TFLOPS and 485 TOPS with sparsity, 300 GB/s, 24 GB.
        "l4": _gpu(bf16=121, int8=242.5, read=300, memory_gb=24),
        # NVIDIA A100 data sheet, SXM 80 GB (2021): 312 TFLOPS, 624 TOPS, 2,039 GB/s.
        "a100-80g": _gpu(bf16=312, int8=624, read=2039, memory_gb=80),
        # NVIDIA H100 data sheet, SXM5 (2023): 1,979 TFLOPS and 3,958 TOPS with sparsity, 3.35 TB/s, 80 GB.
        "h100-sxm": _gpu(bf16=989.4, int8=1979, read=3350, memory_gb=80),
        # NVIDIA H200 data sheet, SXM (2024): the H100's operations, 4.8 TB/s, 141 GB.
        "h200": _gpu(bf16=989.4, int8=1979, read=4800, memory_gb=141),
        # AMD EPYC 9354 product page (2022): 32 cores of Zen 4, base clock 3.25 GHz, 12 channels of DDR5-4800 (460.8 GB/s).
        # A core does one 512-bit multiply-add a cycle (two pipes of 256 bits): 64 operations in bf16, 128 in int8.
        "epyc-9354": Device(
            bf16_ops=32 * 3.25e9 * 64,
            int8_ops=32 * 3.25e9 * 128,
            read_bytes=460.8 * G,
            memory_bytes=None,
            launch_s=_CPU_LAUNCH_S,
        ),
    }
)

_ALIASES = {"a100": "a100-80g", "h100": "h100-sxm", "h200-sxm": "h200", "epyc9354": "epyc-9354"}


def find_device(name: str) -> tuple[str, Device]:
    """Return a device with its whole name, whatever case it is written in; raises ConfigError, naming all, without one."""
    lower = name.lower()
    whole = _ALIASES.get(lower, lower)
    device = DEVICES.get(whole)
    if device is None:
        raise ConfigError(f"There is no device {name!r}; there are {', '.join(DEVICES)}.")
    return whole, device
