"""Every regular expression of the package takes time in proportion to the text, whatever the text holds.

Patterns are found by walking the modules' values and by reading the source for calls such as `re.sub("literal", ...)`.
Each is attacked through the methods by which the package uses it.
"""

import ast
import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import memoryd
import memoryd_server
from regex_attacks import weakness

# The time is measured in processor time; on a busy machine each part takes minutes.
pytestmark = [pytest.mark.attacks, pytest.mark.timeout(600)]

FOLDERS = {"memoryd_server": Path(memoryd_server.__file__).parent, "memoryd": Path(memoryd.__file__).parent}
METHODS = {name: name for name in ("search", "match", "fullmatch", "finditer")}
METHODS |= dict.fromkeys(("sub", "subn", "findall", "split"), "finditer")
# How patterns are used that are reached through a container or an argument.
USES = {
    "FORMS": "finditer",
    "KEY_PATTERNS": "finditer",
    "_CONNECTED": "match",
    "_CONNECTED_ABROAD": "match",
    "_OPTIONS": "finditer",
    "PATTERNS": "finditer",
    "_TRIGGERS": "search",
    "_CATEGORIES": "search",
    "FAMILIES": "search",
    "_TOTAL": "search",
    "_VECTORS": "search",
    "_PENDING": "search",
    "_ANY": "match",
    "_BEFORE_A_DATE": "search",
    "_BEFORE_A_PERIOD": "search",
    "_GENERATED": "match",
}
# Functions that compile what they are given: tests of their own attack what they make.
COMPILERS = {
    ("globs.py", "_compile_name"),
    ("search/date_patterns.py", "_pattern"),
    ("sources/ignore.py", "_compile_segment"),
    ("qmd/home.py", "_character_class"),
}
# Patterns that no foreign text reaches.
TRUSTED = {"memoryd_server.settings.document._DOCSTRING": "reads our own docstrings, when the documentation is made"}
DEEPEST = 6
# So that two processes share the work, and no test comes near the time limit.
PARTS = 8

# What the package used before, and the attack that each fell to.
QUADRATIC = {
    "silent reply": (
        r"^[\s*_`\"']*(?:HEARTBEAT_OK|NO_REPLY)\b[\s*_`\"'.!]*|\s*\b(?:HEARTBEAT_OK|NO_REPLY)[\s*_`\"'.!]*$",
        0,
    ),
    "reply tag": (r"\[\[\s*(?:reply_to_current|reply_to:[^\]\n]*|audio_as_voice)\s*\]\]\s*", 0),
    "heartbeat": (r"HEARTBEAT\.md\b[\s\S]*\bHEARTBEAT_OK\b", 0),
    "user option": (r"(?<!\S)(?:-u|--user)[\s=]+[\"']?[^\s:\"']+:(?P<secret>[^\s\"']+)", 0),
    "nothing found": (r"(?:^|[:\]])\s*no results found\b[^:]*$", re.IGNORECASE),
    "unknown collection": (r"collection\b.*\b(?:not found|does not exist|missing)", re.IGNORECASE),
    "number before a word": (r"(\d+) documents? (?:\((\d+)%\) )?need embeddings", 0),
    "half characters": ("[\ud800-\udfff\ufffd]+$", 0),
    "dated path": (r"(?:^|/)memory/(?:.*/)?([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])[^/]*$", re.DOTALL),
    "line that begins with blanks": (r"^\s*Total:\s+(\d+)", re.MULTILINE),
    "open bracket": (r"\*\*/|\*\*|\\.|\[[^\]]+\]|.", re.DOTALL),
    "query of an address": (r"(?<=[?&])([^=&#\s]+)=[^&#\s]*", 0),
    "array length": (r"(?i)array.* length \d", 0),
    "exponential": (r"(?:a+)+b", 0),
}
LINEAR = (r"\s+", r"\[[^\[\]]*\]", r"(?m)^(?>.*?a).*b", r"\d{1,9} files", r"(?:[a-z]+-)*[a-z]+", r"<[^<>]*>|&\w+;")


def modules():
    for package in (memoryd_server, memoryd):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def patterns_in(value, depth=0):
    """The patterns that a value is or holds."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth < DEEPEST:
        inside = ()
        if isinstance(value, Mapping):
            inside = (*value.keys(), *value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            inside = tuple(value)
        elif isinstance(value, type):
            own = (value.__module__ or "").startswith(("memoryd_server", "memoryd."))
            inside = tuple(each for each in vars(value).values() if not isinstance(each, type)) if own else ()
        elif dataclasses.is_dataclass(value):
            inside = tuple(getattr(value, field.name, None) for field in dataclasses.fields(value))
        for each in inside:
            yield from patterns_in(each, depth + 1)


def sources():
    for folder in FOLDERS.values():
        for file in sorted(folder.rglob("*.py")):
            yield file.relative_to(folder).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def uses():
    """The methods that are called on values of each name."""
    found = {name: {method} for name, method in USES.items()}
    for _, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                name = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                found.setdefault(name, set()).add(METHODS[node.attr])
    return found


def named():
    """(places, pattern, methods) of the patterns in the modules' values. What is imported has several places."""
    used, places = uses(), {}
    for module in modules():
        for name, value in vars(module).items():
            for pattern in () if name.startswith("__") else patterns_in(value):
                places.setdefault(pattern, {})[f"{module.__name__}.{name}"] = None
    for pattern, names in places.items():
        methods = {method for place in names for method in used.get(place.rpartition(".")[2], ())}
        yield tuple(names), pattern, sorted(methods)


def calls_of_re():
    """(file, function, call) of each use of `re` below the top level of a module."""
    for file, tree in sources():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for node in ast.walk(function):
                    called = node.func if isinstance(node, ast.Call) else None
                    if isinstance(called, ast.Attribute) and getattr(called.value, "id", "") == "re":
                        yield file, getattr(function, "name", "lambda"), node


def inline():
    """(places, pattern, methods) of the patterns that calls of `re` are given as literals."""
    for file, function, call in calls_of_re():
        if isinstance(call.args[0], ast.Constant) and call.func.attr != "escape":
            flags = [each for each in ast.walk(call) if isinstance(each, ast.Attribute) and each.attr.isupper()]
            pattern = re.compile(call.args[0].value, sum({getattr(re, each.attr) for each in flags}, re.NOFLAG))
            methods = sorted({METHODS[call.func.attr]} if call.func.attr in METHODS else set(METHODS.values()))
            yield (f"{file}:{function}",), pattern, methods


@cache
def found():
    """Every pattern of the package, as (places, pattern, methods). It imports every module, so not at collection."""
    return [*named(), *inline()]


@pytest.mark.slow
def test_every_pattern_is_found():
    """As many as the source names at the top level of modules and in functions, and the ones known to be hidden."""
    places = {place for each, _, _ in found() for place in each}
    assert len(found()) > 150
    for name in (
        "sources.transcript_text._TAG_OPENS",
        "sources.secret_forms.FORMS",
        "sources.secret_keys.KEY_PATTERNS",
        "search.dates.PATTERNS",
    ):
        assert f"memoryd_server.{name}" in places
    assert "entries/capture.py:_undisguise" in places
    for file, tree in sources():
        for node in tree.body:
            calls = [n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) == "re.compile"]
            if isinstance(node, ast.Assign | ast.AnnAssign) and calls:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                place = f".{file.removesuffix('.py').replace('/', '.')}.{ast.unparse(target)}"
                assert any(each.endswith(place) for each in places), place


@pytest.mark.slow
def test_only_functions_with_tests_of_their_own_compile_what_they_are_given():
    given = {
        (file, function)
        for file, function, call in calls_of_re()
        if call.func.attr != "escape" and not isinstance(call.args[0], ast.Constant)
    }
    assert given == COMPILERS


@pytest.mark.slow
def test_the_use_of_every_pattern_is_known():
    assert [places for places, _, methods in found() if not methods and TRUSTED.keys().isdisjoint(places)] == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_patterns_take_time_in_proportion_to_their_texts(part):
    """All patterns in so many parts, each with every violation in its message."""
    weak = [
        (places[0], method, attack)
        for places, pattern, methods in found()[part::PARTS]
        for method in methods
        if TRUSTED.keys().isdisjoint(places) and (attack := weakness(pattern, method))
    ]
    assert not weak, ascii(weak)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUADRATIC)
def test_quadratic_pattern_is_noticed(name):
    assert weakness(re.compile(*QUADRATIC[name]), "finditer") is not None


@pytest.mark.parametrize("text", LINEAR)
def test_linear_pattern_is_not_blamed(text):
    assert weakness(re.compile(text), "finditer") is None
