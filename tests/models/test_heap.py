import ctypes
import resource
import sys
from pathlib import Path

import pytest

from headway.models.heap import release_freed_memory


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="only glibc has malloc_trim",
)
def test_freed_memory_leaves_the_process() -> None:
    blocks = [bytes(1000) for _ in range(50_000)]  # too large for Python's own pools
    kept = blocks[::1000]  # keeps the allocator from returning the end of its heap by itself
    del blocks
    before = resident_bytes()
    release_freed_memory()
    assert before - resident_bytes() > 30e6
    assert len(kept) == 50
