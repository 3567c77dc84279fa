"""Which tests belong to the long tier: the ones marked `slow`, and all but a few cases of tests that start a daemon.

Also the order of the tests if several workers run them.
"""

from itertools import islice

import pytest


def keep_cases(items, folder, most):
    """Mark as slow all but `most` cases, evenly spread, of each parametrized test below `folder`."""
    tests = {}
    # Compares strings: thousands of tests are collected, and methods of `Path` would take seconds.
    below = f"{folder}/"
    for item in items:
        if not str(item.path).startswith(below):
            continue
        if not any(item.get_closest_marker(name) for name in ("slow", "clients", "skip")):
            tests.setdefault((item.path, item.originalname), []).append(item)
    for cases in tests.values():
        step = max(1, (len(cases) - 1) / max(1, most - 1))
        kept = {round(number * step) for number in range(most)}
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.slow)


# The files that take longest, in the order in which they begin; then those of e2e. One worker runs all tests of each of
# the first ones.
LONGEST = (
    "e2e/test_openclaw_plugin.py",
    "e2e/test_entry_kills.py",
    "unit/entries/test_heap.py",
    "e2e/test_openclaw_recall.py",
    "e2e/test_kill_points.py",
    "e2e/test_many_clients.py",
    "rpc/test_real_openclaw.py",
    "rpc/test_openclaw_sessions.py",
    "unit/writing/test_every_step.py",
    "e2e/test_patroni.py",
    "e2e/test_replica_kills.py",
    "e2e/test_partition.py",
)


def deal(items, folder, workers):
    """Return `items` in an order in which each worker begins with an equal share of the long files below `folder`.

    xdist divides the list into one part per worker. A worker that has finished its part takes tests from the end of the
    longest part that is left. With the long tests first, no worker has a long test left when the others have finished.
    """
    ranks = {f"{folder}/{name}": rank for rank, name in enumerate(LONGEST)}
    files, others = {}, []
    for item in items:
        path = str(item.path)
        is_long = path in ranks or path.startswith(f"{folder}/e2e/")
        (files.setdefault(path, []) if is_long else others).append(item)
    order = sorted(files, key=lambda path: (ranks.get(path, len(ranks)), path))
    rest, left, dealt = iter(others), len(items), []
    for number in range(workers):
        size = left // (workers - number)
        left -= size
        first = [item for path in order[number::workers] for item in files[path]]
        dealt += [*first, *islice(rest, max(0, size - len(first)))]
    return [*dealt, *rest]
