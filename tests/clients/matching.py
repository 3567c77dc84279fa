"""Compares an answer with what a case expects of it.

An object matches when every field that is expected matches; a list matches item by item. An object with one key that
begins with "$" is a matcher: see `tests/clients/README.md`.
"""

import re


class Mismatch(AssertionError):
    """An answer is not what was expected."""


def match(expected, found, saved=None, where="answer"):
    """Raises `Mismatch` where `found` is not as `expected`; puts what `$save` names into `saved`."""
    if isinstance(expected, dict) and len(expected) == 1 and next(iter(expected)).startswith("$"):
        ((name, argument),) = expected.items()
        if name not in _MATCHERS:
            raise ValueError(f"{where}: there is no matcher {name}")
        _MATCHERS[name](argument, found, saved, where)
    elif isinstance(expected, dict):
        _check(isinstance(found, dict), expected, found, where)
        for key, value in expected.items():
            match(value, found.get(key), saved, f"{where}.{key}")
    elif isinstance(expected, list):
        _check(isinstance(found, list) and len(found) == len(expected), expected, found, where)
        for number, value in enumerate(expected):
            match(value, found[number], saved, f"{where}[{number}]")
    else:
        _check(found == expected and type(found) is type(expected), expected, found, where)


def _check(held, expected, found, where):
    if not held:
        raise Mismatch(f"{where}: expected {expected!r}, found {found!r}")


def _contains(argument, found, saved, where):
    """Of a text: the part, or each of the parts. Of a list: an item that matches, or one for each of the matches."""
    wanted = argument if isinstance(argument, list) else [argument]
    _check(isinstance(found, str | list), {"$contains": argument}, found, where)
    for each in wanted:
        held = each in found if isinstance(found, str) else any(_matches(each, item, saved) for item in found)
        _check(held, {"$contains": each}, found, where)


def _matches(expected, found, saved):
    try:
        match(expected, found, saved)
    except Mismatch:
        return False
    return True


def _save(argument, found, saved, where):
    _check(found is not None, "something to save", found, where)
    saved[argument] = found


def _all(argument, found, saved, where):
    for each in argument:
        match(each, found, saved, where)


_MATCHERS = {
    "$present": lambda argument, found, _, where: _check((found is not None) is argument, "presence", found, where),
    "$regex": lambda argument, found, _, where: _check(
        isinstance(found, str) and re.search(argument, found), {"$regex": argument}, found, where
    ),
    "$contains": _contains,
    "$lacks": lambda argument, found, saved, where: _check(
        not _matches({"$contains": argument}, found, saved), {"$lacks": argument}, found, where
    ),
    "$length": lambda argument, found, _, where: _check(
        found is not None and len(found) == argument, {"$length": argument}, found, where
    ),
    # Numbers of 64 bits are strings in proto3 JSON.
    "$at_least": lambda argument, found, _, where: _check(
        found is not None and float(found) >= argument, {"$at_least": argument}, found, where
    ),
    "$at_most": lambda argument, found, _, where: _check(
        found is not None and float(found) <= argument, {"$at_most": argument}, found, where
    ),
    "$save": _save,
    "$all": _all,
}
