"""Memory that was freed goes back to the system. It knows nothing about what it was used for."""

import ctypes


def release_freed_memory() -> None:
    """Return the pages of freed objects, which the C library's allocator otherwise keeps for later. Does nothing elsewhere.

    malloc_trim(3) of glibc: below 1 ms after SmolLM2's tokenizer, 60 ms and 310 MB after one of 262,000 tokens.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
