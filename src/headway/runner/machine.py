"""What this process may take of the machine: memory and threads, no more than its control group allows.

It knows no model. Linux only: /proc/meminfo, control groups of version 2 (cgroup-v2.rst).
"""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_memory_bytes() -> int:
    """Memory that this process may still take: the machine's, or its control group's where that is less."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _read_lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    return min(available, group_available_bytes(_CGROUP, available))


def group_available_bytes(group: Path, otherwise: int) -> int:
    """What a control group's limit leaves, or `otherwise` without one.

    The group is charged for the files it read, too, a model among them; the kernel takes their pages back when memory is
    asked for (cgroup-v2.rst, memory.stat).
    """
    limit, used = (_read_lines(group / name) for name in ("memory.max", "memory.current"))
    if not (limit and used and limit[0].isdigit()):
        return otherwise
    stat = dict(line.split(maxsplit=1) for line in _read_lines(group / "memory.stat"))
    num_cached_bytes = sum(int(stat.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(0, int(limit[0]) - max(0, int(used[0]) - num_cached_bytes))


def size_text(num_bytes: int) -> str:
    """Return an amount of memory for people: in GiB, or in MiB where it is less than one."""
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.1f} MiB"


def available_threads() -> int:
    """Threads that the CPUs this process may use can run at once."""
    quota = _read_lines(_CGROUP / "cpu.max")  # "quota period" in microseconds, or "max period"
    return auto_threads(len(os.sched_getaffinity(0)), quota[0] if quota else "max 100000")


def auto_threads(num_cpus: int, quota: str) -> int:
    """Threads for the CPUs this process may use, no more than its control group's quota pays for."""
    limit, _, period = quota.partition(" ")
    if not (limit.isdigit() and period.isdigit() and int(period) > 0):
        return num_cpus
    return max(1, min(num_cpus, int(limit) // int(period)))


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
