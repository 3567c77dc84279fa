"""Checks of the settings: unknown and misspelt keys, wrong types and values out of bounds, each with its path.

`Checker` validates the blocks. `check_spelling` finds misspelt keys, such as `agents.defaults.memorysearch`, in objects
whose unknown keys are ignored.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from memoryd_server.settings.layers import Findings, SettingsTree
from memoryd_server.settings.rules import KeyPath, SettingsBlock, did_you_mean, keys, kind_of, nearest, nested, rules_of

B = TypeVar("B", bound=SettingsBlock)

_EXPECTED: Mapping[str, str] = {
    "string": "a string",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "tuple": "an array",
    "model": "an object",
    "dict": "an object",
    "path": "a string",
}

_AGENTS = (("agents", "list"), ("agents", "entries"))


def agent_of(path: KeyPath) -> str:
    """Return the id of the agent whose key is at `path`; empty for a key that agents share."""
    is_agent = path[:2] in _AGENTS and path[2:] and path[2] != "$include"
    return path[2].strip("[]") if is_agent else ""


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks parts of a tree and adds what it finds to `report`."""

    tree: SettingsTree
    report: Findings

    def problem(self, path: KeyPath, message: str) -> None:
        """Add a problem with the key at `path`."""
        self.report.problem(self.tree.origin(path), path, message, agent_of(path))

    def warn(self, path: KeyPath, message: str) -> None:
        """Add a warning about the key at `path`."""
        self.report.warn(self.tree.origin(path), path, message)

    def block_remote(self, path: KeyPath, message: str) -> None:
        """Warn about the key at `path`, and disable remote embeddings: it may restrict what is sent."""
        self.report.block_remote(self.tree.origin(path), path, message, agent_of(path))

    def keys(self, path: KeyPath) -> tuple[str, ...]:
        """Return the keys of the object at `path`; none if there is no object."""
        value = self.tree.at(*path) if path else self.tree.values
        return tuple(value) if isinstance(value, dict) else ()

    def table(self, path: KeyPath) -> dict[str, Any]:
        """Return the object at `path`; empty if there is none. A value of another type is a problem."""
        value = self.tree.at(*path)
        if value is not None and not isinstance(value, dict):
            self.problem(path, f"expected an object, found {kind_of(value)}")
        return value if isinstance(value, dict) else {}

    def text(self, path: KeyPath) -> str:
        """Return the trimmed string at `path`; empty if there is none. A value of another type is a problem."""
        value = self.tree.at(*path)
        if value is not None and not isinstance(value, str):
            self.problem(path, f"expected a string, found {kind_of(value)}")
        return value.strip() if isinstance(value, str) else ""

    def block(self, model: type[B], raw: Mapping[str, Any], path: KeyPath) -> B:
        """Return the block of `raw`, which is at `path`. If `raw` has a problem, return the block of the defaults."""
        known = self._known_keys(model, raw, path)
        try:
            block = model.model_validate(known)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                self.problem((*path, *map(_part, detail["loc"])), _message(detail))
            return model()
        self._complaints(model, known, path)
        return block

    def hidden_problems(self, model: type[SettingsBlock], path: KeyPath, above: SettingsTree) -> None:
        """Add the problems of the keys in the block at `path` that the tree `above` has from a later layer.

        Without this, a flag would hide a mistake in a file until it is left out.
        """
        raw = self.tree.at(*path)
        if raw is None:
            return
        try:
            model.model_validate(self._known_keys(model, self.table(path), path))
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                key = (*path, *map(_part, detail["loc"]))
                # The later layer may complete an object whose keys depend on each other.
                is_whole = detail["type"] == "value_error" and isinstance(self.tree.at(*key), dict)
                if above.origin(key) != self.tree.origin(key) and not is_whole:
                    self.problem(key, _message(detail))

    def _known_keys(self, model: type[SettingsBlock], raw: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
        fields = {key: field for _, key, field in keys(model)}
        for key in sorted(raw.keys() - fields.keys()):
            self.problem((*path, key), f"unknown key{did_you_mean(key, fields)}")
        return {key: self._within(fields[key], raw[key], (*path, key)) for key in fields if key in raw}

    def _within(self, field: FieldInfo, value: Any, path: KeyPath) -> Any:
        inner = nested(field.annotation)
        if inner and isinstance(value, Mapping):
            return self._known_keys(inner, value, path)
        if inner and isinstance(value, list):
            return [self._within(field, item, (*path, f"[{n}]")) for n, item in enumerate(value)]
        return value

    def _complaints(self, model: type[SettingsBlock], raw: Mapping[str, Any], path: KeyPath) -> None:
        for _, key, field in keys(model):
            inner, value, here = nested(field.annotation), raw.get(key), (*path, key)
            if inner and isinstance(value, Mapping):
                self._complaints(inner, value, here)
            for rule in rules_of(field) if key in raw else ():
                complaint = rule.complaint(value)
                if complaint:
                    self.warn(here, complaint)


def _part(step: int | str) -> str:
    return f"[{step}]" if isinstance(step, int) else step


def _message(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind == "missing":
        return "the key is required"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "literal_error":
        return _literal_message(detail)
    expected = _EXPECTED.get(kind.split("_")[0])
    return f"expected {expected}, found {kind_of(detail['input'])}" if expected else detail["msg"]


def _literal_message(detail: ErrorDetails) -> str:
    words = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
    found = detail["input"]
    meant = did_you_mean(found, words) if isinstance(found, str) else ""
    return f"expected one of {', '.join(words)}{meant}"


# A word of six letters with two of them swapped, such as `memroy`, is closer than this.
CLOSE = 0.8
# OpenClaw's `reserveTokens` is further from `reserveTokensFloor` than this.
_CLOSE_IN_COMPACTION = 0.85


class _Place(NamedTuple):
    """An object and its known keys. A misspelt key of `harmless` cannot change what is sent to a provider."""

    path: KeyPath
    known: tuple[str, ...]
    harmless: tuple[str, ...] = ()
    close: float = CLOSE


_COMPACTION = ("reserveTokensFloor", "postIndexSync", "memoryFlush")
_STARTUP_CONTEXT = ("enabled", "applyOn", "dailyMemoryDays", "maxFileBytes", "maxFileChars", "maxTotalChars")
_PLACES = (
    _Place((), ("memoryd", "memory", "agents", "plugins", "models", "secrets")),
    _Place(("agents",), ("defaults", "list", "entries", "ownership"), harmless=("ownership",)),
    _Place(
        ("agents", "defaults"),
        ("workspace", "memorySearch", "userTimezone", "compaction", "startupContext"),
        harmless=("userTimezone", "compaction", "startupContext"),
    ),
    _Place(("agents", "defaults", "startupContext"), _STARTUP_CONTEXT, _STARTUP_CONTEXT),
    _Place(("agents", "defaults", "compaction"), _COMPACTION, _COMPACTION, _CLOSE_IN_COMPACTION),
    _Place(("models",), ("providers",)),
    _Place(("plugins",), ("enabled", "slots", "entries", "allow", "deny")),
    _Place(("plugins", "slots"), ("memory",)),
    _Place(("plugins", "entries"), ("memory-core", "memory-lancedb")),
    _Place(("plugins", "entries", "memory-core"), ("enabled", "config")),
    _Place(("plugins", "entries", "memory-lancedb"), ("enabled", "config")),
)
_IN_AGENT = ("workspace", "memorySearch", "default", "agentDir", "contextLimits")
_IN_ENTRY = ("workspace", "memory", "default", "agentDir", "contextLimits")


def check_spelling(checker: Checker, agent_paths: Iterable[KeyPath]) -> None:
    """Warn of keys that are close to known ones; `agent_paths` are the paths of the agents.

    A misspelt key that may restrict what is sent to a provider disables remote embeddings.
    """
    agents = (
        _Place(path, _IN_ENTRY if path[1] == "entries" else _IN_AGENT, harmless=("contextLimits",))
        for path in agent_paths
    )
    for place in (*_PLACES, *agents):
        for key, meant in find_misspelt(checker.keys(place.path), place.known, place.close):
            found = ignored_message(meant)
            if meant in place.harmless:
                checker.warn((*place.path, key), found)
            else:
                checker.block_remote((*place.path, key), found)


def find_misspelt(keys: Iterable[str], known: Iterable[str], close: float = CLOSE) -> Iterator[tuple[str, str]]:
    """Yield each unknown key that is close to a known one, with the known one."""
    known = tuple(known)
    for key in keys:
        meant = None if key in known else nearest(key, known, close)
        if meant:
            yield key, meant


def ignored_message(meant: str) -> str:
    """Return the message about a misspelt key."""
    return f'the key is ignored (did you mean "{meant}"?)'
