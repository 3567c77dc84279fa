"""Which tests belong to the long tier: the ones marked `slow`, and all but a few cases of tests that start a daemon."""

import pytest


def keep_cases(items, folder, most):
    """Mark as slow all but `most` cases, evenly spread, of each parametrized test below `folder`."""
    tests = {}
    # Compares strings: thousands of tests are collected, and methods of `Path` would take seconds.
    below = f"{folder}/"
    for item in items:
        if not str(item.path).startswith(below):
            continue
        if not any(item.get_closest_marker(name) for name in ("slow", "clients")):
            tests.setdefault((item.path, item.originalname), []).append(item)
    for cases in tests.values():
        step = max(1, (len(cases) - 1) / max(1, most - 1))
        kept = {round(number * step) for number in range(most)}
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.slow)
