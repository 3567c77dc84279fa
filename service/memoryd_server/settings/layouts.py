"""The two layouts of OpenClaw's memory settings: which one is in use, and the values of keys that both have.

The current layout has `memory.search` and `agents.entries.<id>.memory.search`, the older one
`agents.defaults.memorySearch` and `agents.list[].memorySearch`. Both are read, key by key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryd_server.settings.checking import Checker
from memoryd_server.settings.includes import INCLUDE
from memoryd_server.settings.layers import SettingsTree, exists, is_whole
from memoryd_server.settings.roster import DEFAULTS, AgentPlace, later
from memoryd_server.settings.rules import KeyPath, dotted, kind_of

CURRENT, OLDER = "current", "older"

GLOBAL_SEARCH = ("memory", "search")

# The keys of memory that only the older layout has, in OpenClaw's own file.
_OLDER_KEYS: tuple[KeyPath, ...] = (
    ("memorySearch",),
    (*DEFAULTS, "memorySearch"),
    ("agents", "list"),
    ("memory", "backend"),
    ("memory", "qmd"),
)
_CURRENT_KEYS: tuple[KeyPath, ...] = (GLOBAL_SEARCH, ("agents", "entries"))
# The first version that is known to write the current layout only, and the database that it creates.
_FIRST_VERSION = (2026, 9)
_VERSION = ("meta", "lastTouchedVersion")
_DATABASE = Path("state") / "openclaw.sqlite"
_LONGEST_VERSION = 32


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the settings, CURRENT or OLDER, and its default of `rememberAcrossConversations`."""

    name: str
    remembers: bool


def find_layout(tree: SettingsTree, openclaw: Mapping[str, Any], state_dir: Path) -> str:
    """Return the layout of the settings: CURRENT or OLDER. It determines the defaults that differ.

    The layout is the current one if a file has `memory.search` or `agents.entries`, even if a later file removes them.
    Otherwise it is the current one if `openclaw`, which is OpenClaw's own file, has no key that only the older layout
    has, and a current version of OpenClaw has written the file or keeps its database in the state directory.
    """
    if any(tree.at(*path) is not None or _at(openclaw, path) is not None for path in _CURRENT_KEYS):
        return CURRENT
    if any(_at(openclaw, path) is not None for path in _OLDER_KEYS):
        return OLDER
    return CURRENT if _is_current_version(_at(openclaw, _VERSION)) or exists(state_dir / _DATABASE) else OLDER


def _at(value: object, path: KeyPath) -> object:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _is_current_version(text: object) -> bool:
    if not isinstance(text, str) or len(text) > _LONGEST_VERSION:
        return False
    numbers = [part for part in text.split(".")[: len(_FIRST_VERSION)] if part.isascii() and part.isdigit()]
    return len(numbers) == len(_FIRST_VERSION) and tuple(map(int, numbers)) >= _FIRST_VERSION


def remembers_conversations(tree: SettingsTree) -> bool:
    """Return the current layout's default of `rememberAcrossConversations`.

    True only if all direct chats are known to be one session: no `dmScope` is set, neither of `session` nor of a
    binding, and both can be read.
    """
    session, bindings = tree.at("session"), tree.at("bindings")
    if INCLUDE in tree.values or not _is_main_scope(session) or not isinstance(bindings, list | None):
        return False
    return all(isinstance(each, dict) and _has_no_scope(each) for each in bindings or ())


def _is_main_scope(session: object) -> bool:
    if session is None:
        return True
    return isinstance(session, dict) and INCLUDE not in session and session.get("dmScope") in (None, "main")


def _has_no_scope(binding: Mapping[str, Any]) -> bool:
    session = binding.get("session")
    if INCLUDE in binding:
        return False
    return session is None or (isinstance(session, dict) and not {"dmScope", INCLUDE}.intersection(session))


@dataclass(frozen=True, slots=True)
class SearchPlace:
    """The places of one block of memory settings: of an agent, or of all agents."""

    current: KeyPath
    older: KeyPath

    @property
    def paths(self) -> tuple[KeyPath, KeyPath]:
        """Return both places, the current one first."""
        return self.current, self.older

    def merged(self, checker: Checker) -> dict[str, Any]:
        """Return the keys of both places, merged. A key that one file has in both places is a warning."""
        older, current = checker.table(self.older), _table(checker, self.current)
        return dict(_merged(checker, (self.older, older), (self.current, current)))

    def path_of(self, tree: SettingsTree, *key: str) -> KeyPath:
        """Return the path of a key that is in force; its path in the older layout if neither is set."""
        return later(tree, (*self.older, *key), (*self.current, *key))


SHARED_SEARCH = SearchPlace(GLOBAL_SEARCH, (*DEFAULTS, "memorySearch"))
"""The memory settings that all agents share."""


def search_of(place: AgentPlace) -> SearchPlace:
    """Return the places of an agent's own memory settings."""
    return SearchPlace((*place.entry, "memory", "search"), (*place.listed, "memorySearch"))


def _table(checker: Checker, path: KeyPath) -> dict[str, Any]:
    # In an agent's entry, the object above may be of a wrong type.
    above = checker.tree.at(*path[:-1])
    if above is not None and not isinstance(above, dict) and path[:-1] != ("memory",):
        checker.problem(path[:-1], f"expected an object, found {kind_of(above)}")
    return checker.table(path)


_Object = tuple[KeyPath, Mapping[str, Any]]


def _merged(checker: Checker, older: _Object, current: _Object) -> Iterator[tuple[str, Any]]:
    (old_path, old), (new_path, new) = older, current
    for key in dict.fromkeys((*old, *new)):
        paths = (*old_path, key), (*new_path, key)
        if key not in old or key not in new:
            yield key, new.get(key, old.get(key))
        elif isinstance(old[key], dict) and isinstance(new[key], dict) and not is_whole(paths[0]):
            yield key, dict(_merged(checker, (paths[0], old[key]), (paths[1], new[key])))
        else:
            if checker.tree.rank(paths[0]) == checker.tree.rank(paths[1]):
                checker.warn(paths[0], f"the file also has {dotted(paths[1])}, which is used instead")
            yield key, new[key] if later(checker.tree, *paths) == paths[1] else old[key]
