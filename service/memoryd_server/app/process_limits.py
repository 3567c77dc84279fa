"""Limits of the whole process: its open files, and the threads of its numeric library."""

import resource
from contextlib import suppress

import threadpoolctl

WANTED_DESCRIPTORS = 65_536


def raise_descriptor_limit() -> None:
    """Allow the process as many open files as the system permits, up to `WANTED_DESCRIPTORS`."""
    # Each agent has about ten open files, and the default limit of a process is often 1,024.
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if most == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, most)
    if resource.RLIM_INFINITY != now < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def use_calling_thread_only() -> None:
    """Prevent BLAS from starting threads, in the whole process.

    The products of a search take tenths of a millisecond. Threads do not speed them up on an idle machine. On a busy
    machine each product would wait until the last thread has run: 100 ms instead of one.
    """
    threadpoolctl.threadpool_limits(1, user_api="blas")
