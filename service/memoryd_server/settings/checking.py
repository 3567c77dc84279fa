"""From what stands in files to blocks: unknown keys, wrong types and values out of bounds, each with its path."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .block import Block, keys, nested, rules_of
from .report import Report
from .tree import Tree
from .words import Path, did_you_mean, kind_of

B = TypeVar("B", bound=Block)

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

_AGENT_LIST = ("agents", "list")


def agent_of(path: Path) -> str:
    """Return the id of the agent whose key is at `path`; empty for a key that agents share."""
    return path[2][1:-1] if path[:2] == _AGENT_LIST and path[2:] else ""


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks parts of one tree and tells what it finds to one report."""

    tree: Tree
    report: Report

    def problem(self, path: Path, message: str) -> None:
        """Adds a problem with the key at `path`."""
        self.report.problem(self.tree.origin(path), path, message, agent_of(path))

    def warn(self, path: Path, message: str) -> None:
        """Adds a warning about the key at `path`."""
        self.report.warn(self.tree.origin(path), path, message)

    def block_remote(self, path: Path, message: str) -> None:
        """Warn about the key at `path`, and disable remote embeddings: it may restrict what is sent."""
        self.report.block_remote(self.tree.origin(path), path, message, agent_of(path))

    def keys(self, path: Path) -> tuple[str, ...]:
        """Return the keys of the object at `path`; none where there is no object."""
        value = self.tree.at(*path) if path else self.tree.values
        return tuple(value) if isinstance(value, dict) else ()

    def table(self, path: Path) -> dict[str, Any]:
        """The object at `path`; empty when there is none, or when something else stands there, which is a problem."""
        value = self.tree.at(*path)
        if value is not None and not isinstance(value, dict):
            self.problem(path, f"expected an object, found {kind_of(value)}")
        return value if isinstance(value, dict) else {}

    def text(self, path: Path) -> str:
        """The trimmed string at `path`; empty when there is none, or when something else stands there, a problem."""
        value = self.tree.at(*path)
        if value is not None and not isinstance(value, str):
            self.problem(path, f"expected a string, found {kind_of(value)}")
        return value.strip() if isinstance(value, str) else ""

    def block(self, model: type[B], raw: Mapping[str, Any], path: Path) -> B:
        """The block that `raw`, found at `path`, stands for; the defaults when there was a problem with it."""
        known = self._known_keys(model, raw, path)
        try:
            block = model.model_validate(known)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                self.problem((*path, *map(_part, detail["loc"])), _in_words(detail))
            return model()
        self._complaints(model, known, path)
        return block

    def _known_keys(self, model: type[Block], raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
        fields = {key: field for _, key, field in keys(model)}
        for key in sorted(raw.keys() - fields.keys()):
            self.problem((*path, key), f"unknown key{did_you_mean(key, fields)}")
        return {key: self._within(fields[key], raw[key], (*path, key)) for key in fields if key in raw}

    def _within(self, field: FieldInfo, value: Any, path: Path) -> Any:
        inner = nested(field.annotation)
        if inner and isinstance(value, Mapping):
            return self._known_keys(inner, value, path)
        if inner and isinstance(value, list):
            return [self._within(field, item, (*path, f"[{n}]")) for n, item in enumerate(value)]
        return value

    def _complaints(self, model: type[Block], raw: Mapping[str, Any], path: Path) -> None:
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


def _in_words(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind == "missing":
        return "the key is required"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "literal_error":
        return _not_one_of(detail)
    expected = _EXPECTED.get(kind.split("_")[0])
    return f"expected {expected}, found {kind_of(detail['input'])}" if expected else detail["msg"]


def _not_one_of(detail: ErrorDetails) -> str:
    words = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
    found = detail["input"]
    meant = did_you_mean(found, words) if isinstance(found, str) else ""
    return f"expected one of {', '.join(words)}{meant}"
