"""What a result must say about where it was measured, and how busy the machine was meanwhile.

No names: not the host's, not a user's, no path.
"""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_USEFUL_FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


def describe_machine(cpuinfo: str | None = None) -> dict[str, Any]:
    """Return processor, instruction sets, cores that this process may use, memory and system."""
    fields = parse_cpuinfo(Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo)
    flags = set(fields.get("flags", "").split())
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": fields.get("model name", platform.machine()),
        "cpu_family_model": f"{fields.get('cpu family', '?')}/{fields.get('model', '?')}",
        "cpu_flags": [flag for flag in _USEFUL_FLAGS if flag in flags],
        "virtual_machine": "hypervisor" in flags,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory_kib * 1024 / 1e9, 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def parse_cpuinfo(text: str) -> dict[str, str]:
    """Return the fields of the first processor."""
    pairs = (line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


class BusyMeter:
    """Measures how much of a virtual machine's time went to its neighbours."""

    def __init__(self) -> None:
        self._before = read_stat()

    def stolen(self) -> float:
        """Return the share of all CPU time since the last call that the hypervisor gave to others."""
        before, self._before = self._before, read_stat()
        total = sum(self._before.values()) - sum(before.values())
        return round((self._before["steal"] - before["steal"]) / total, 4) if total else 0.0


def read_stat(text: str | None = None) -> Mapping[str, int]:
    """Return the jiffies of /proc/stat's first line by kind (proc(5)); guest time is within user."""
    text = Path("/proc/stat").read_text() if text is None else text
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return dict(zip(names, map(int, text.split("\n", 1)[0].split()[1:]), strict=False))


def load_average() -> float:
    """Return how many processes ran or wanted to during the last minute; the measured ones are among them."""
    return round(os.getloadavg()[0], 2)
