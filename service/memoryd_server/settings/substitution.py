"""`${NAME}` in the strings of the settings files: replaced by the variable. `$${NAME}` is the text `${NAME}`.

Only names of upper-case letters, digits and `_` count, as in OpenClaw.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memoryd_server.foreign_text import valid_text
from memoryd_server.settings.layers import Findings
from memoryd_server.settings.rules import KeyPath
from memoryd_server.settings.variables import Variables

_REFERENCE = re.compile(r"\$(\$?)\{([A-Z_][A-Z0-9_]*)\}", re.ASCII)
_MAX_FILLED = 4 * 2**20
# Keys and addresses of providers: what reads them reports a variable that is not set, and then sends nothing.
_LATER = frozenset({"apiKey", "headers", "baseUrl", "storageOptions"})
# The keys in it are ids of agents.
_ENTRIES = ("agents", "entries")
# Folders and files that memoryd would create: the default is used instead.
_CREATED = (("store", "path"), ("config", "dbPath"), ("local", "modelCacheDir"), ("sessions", "exportDir"))

DROPPED = object()
"""Returned for a value that must not be used, because it names a variable that is not set."""


@dataclass(slots=True)
class Substitution:
    """Replaces `${NAME}` in strings by variables. `$${NAME}` becomes the text `${NAME}`."""

    variables: Variables
    report: Findings
    characters: int = 0

    def fill(self, value: Any, path: KeyPath, origin: str, used: list[str]) -> Any:
        """Return `value` with the variables in its strings replaced, and append their names to `used`.

        A variable that is unset or blank is a warning, and its `${NAME}` is left. Return `DROPPED` if memoryd would
        create a folder of that name.
        """
        if _LATER.intersection(path[3:] if path[:2] == _ENTRIES else path):
            return value
        if isinstance(value, dict):
            return {key: self.fill(inner, (*path, key), origin, used) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.fill(item, (*path, _index(item, n)), origin, used) for n, item in enumerate(value)]
        return self._text(value, path, origin, used) if isinstance(value, str) and "${" in value else value

    def _text(self, text: str, path: KeyPath, origin: str, used: list[str]) -> Any:
        unset: list[str] = []

        def value(found: re.Match[str]) -> str:
            if found[1]:
                return found[0][1:]
            set_to = valid_text(self.variables.values.get(found[2], ""))
            self.characters += len(set_to)
            if not set_to.strip() or self.characters > _MAX_FILLED:
                unset.append(found[2])
                return found[0]
            used.append(found[2])
            return set_to

        filled = _REFERENCE.sub(value, text)
        is_created = path[-2:] in _CREATED
        for name in dict.fromkeys(unset):
            reason = "too long" if self.variables.values.get(name, "").strip() else "not set"
            effect = "the key is ignored" if is_created else "the text is used as it is"
            self.report.warn(origin, path, f"names the variable {name}, which is {reason}; {effect}")
        return DROPPED if unset and is_created else filled


def _index(item: object, number: int) -> str:
    agent_id = item.get("id") if isinstance(item, dict) else None
    return f"[{agent_id}]" if isinstance(agent_id, str) else f"[{number}]"


def names_variable(text: str) -> bool:
    """Return whether there is a `${NAME}` in `text` that is not escaped."""
    return any(not found[1] for found in _REFERENCE.finditer(text))


def unset_variable(text: str, environ: Mapping[str, str]) -> str:
    """Return the first variable that `text` names although it is unset or blank; empty if there is none."""
    named = (found[2] for found in _REFERENCE.finditer(text) if not found[1])
    return next((name for name in named if not environ.get(name, "").strip()), "")
