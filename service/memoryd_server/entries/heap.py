"""Has LanceDB's many threads leave no more memory behind than they use."""

import ctypes
from contextlib import suppress

MOST_ARENAS = 2

_M_ARENA_MAX = -8
"""The number that glibc's `mallopt` knows this limit by."""


def bound_heap() -> None:
    """Bounds what the process keeps of memory that was freed; to be called before LanceDB starts its threads.

    glibc gives every thread a heap of its own, up to eight a core, and a write of LanceDB passes through dozens of
    threads: after thousands of writes most of the process was holes in such heaps. Where there is no glibc nothing
    is changed.
    """
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    # Arrow's own allocator is one more that keeps what it has got.
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MOST_ARENAS)


def give_back() -> None:
    """Returns free pages to the system, where glibc keeps them."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
