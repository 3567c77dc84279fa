"""The limit of open files of the process."""

import resource
from contextlib import suppress

WANTED_DESCRIPTORS = 65_536


def raise_descriptor_limit() -> None:
    """Allow the process as many open files as the system permits, up to `WANTED_DESCRIPTORS`."""
    # Each agent has about ten open files, and the default limit of a process is often 1,024.
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if most == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, most)
    if resource.RLIM_INFINITY != now < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
