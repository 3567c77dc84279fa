"""The processes that this one has started, as the system shows them."""

import psutil


def pids_of(*scripts):
    """Return the ids of this process's living children that run one of these Python scripts."""
    wanted = set(map(str, scripts))
    found = set()
    for child in psutil.Process().children():
        try:
            if child.status() != psutil.STATUS_ZOMBIE and wanted & set(child.cmdline()):
                found.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found
