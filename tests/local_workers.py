"""The worker processes of local embedding providers, as the system shows them."""

import psutil

from memoryd_server.embed import worker


def worker_pids(also=()):
    """Return the ids of the living workers that this process has started; `also` names other scripts of workers."""
    scripts = {worker.__file__, *map(str, also)}
    found = set()
    for child in psutil.Process().children():
        try:
            if child.status() != psutil.STATUS_ZOMBIE and scripts & set(child.cmdline()):
                found.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found
