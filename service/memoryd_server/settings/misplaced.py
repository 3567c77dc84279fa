"""Settings of memory where memoryd does not look for them, and `plugins` switches that it does not obey.

Each may say that nothing is to be sent to a provider, so each of them disables remote embeddings.
"""

from collections.abc import Iterable

from .checking import Checker
from .entries import PLUGIN as ENTRIES_PLUGIN
from .misspelt import CLOSE
from .words import Path, kind_of, nearest

_INCLUDE = "$include"
_MEMORY_SEARCH = "memorySearch"
_MEMORY_PLUGIN = "memory-core"
_SLOT = ("plugins", "slots", "memory")
_PLUGINS = (
    ("plugins",),
    ("plugins", "slots"),
    ("plugins", "entries"),
    ("plugins", "entries", _MEMORY_PLUGIN),
    ("plugins", "entries", ENTRIES_PLUGIN),
)
# What decides about embeddings, by the names that `memorySearch` and `memory.search` give it.
_OF_MEMORY = ("search", "provider", "fallback", "remote", "embedding", "embeddings")


def check_places(checker: Checker, agent_paths: Iterable[Path]) -> None:
    """Block remote embeddings for each setting in a place where it is not read; `agent_paths` are those of agents."""
    agents = [("agents", "defaults"), *agent_paths]
    for path in ((), ("agents",), *agents, ("memory",), ("models",), ("models", "providers"), *_PLUGINS):
        check_include(checker, path)
    _check_block(checker, (), read=("memory",))
    _check_block(checker, ("agents",), read=())
    for path in agents:
        _check_block(checker, path, read=(_MEMORY_SEARCH,))
    for name in checker.keys(("agents",)):
        if name not in {"defaults", "list", "entries"}:
            _check_block(checker, ("agents", name), read=())
    _check_plugins(checker)


def check_include(checker: Checker, path: Path) -> None:
    """Block remote embeddings for an `$include` at `path`, and take it out of the tree."""
    if _INCLUDE in checker.keys(path):
        checker.block_remote((*path, _INCLUDE), "memoryd does not read included files")
        checker.tree.remove((*path, _INCLUDE))


def _check_block(checker: Checker, path: Path, *, read: tuple[str, ...]) -> None:
    """Block each key of memory at `path` but those that are `read` there."""
    for key in checker.keys(path):
        if key in read:
            continue
        is_search = nearest(key, (_MEMORY_SEARCH,), CLOSE) is not None
        # A key that is nearly the one that is read here has been found by its spelling.
        if (is_search and _MEMORY_SEARCH not in read) or key in ("memory", *_OF_MEMORY):
            checker.block_remote((*path, key), "memoryd does not read this key here")
    if path and checker.tree.at(*path, "enabled") not in (None, True):
        checker.block_remote((*path, "enabled"), "memoryd does not read this key here")


def _check_plugins(checker: Checker) -> None:
    for path in _PLUGINS:
        value = checker.tree.at(*path)
        if value is not None and not isinstance(value, dict):
            checker.block_remote(path, f"expected an object, found {kind_of(value)}; it is ignored")
    slot = checker.tree.at(*_SLOT)
    if slot is not None and not isinstance(slot, str):
        checker.block_remote(_SLOT, f"expected a string, found {kind_of(slot)}; it is ignored")
    elif slot is not None and slot != "none" and slot.strip().lower() in {"", "none", "off", "false", "disabled"}:
        checker.block_remote(_SLOT, 'the value is no plugin (did you mean "none"?)')
    _check_switch(checker, ("plugins", "enabled"))
    _check_switch(checker, ("plugins", "entries", ENTRIES_PLUGIN, "enabled"), obeyed=(True, False))
    if slot is None or slot == _MEMORY_PLUGIN:
        # With another plugin in the slot this one is off anyway.
        check_plugin(checker, _MEMORY_PLUGIN)


def check_plugin(checker: Checker, plugin: str) -> None:
    """Block remote embeddings where OpenClaw's settings switch a plugin off that memory depends on there."""
    _check_switch(checker, ("plugins", "entries", plugin, "enabled"))
    denied = checker.tree.at("plugins", "deny")
    if denied is not None and (not isinstance(denied, list) or plugin in denied):
        checker.block_remote(("plugins", "deny"), "memoryd does not obey it")


def _check_switch(checker: Checker, path: Path, obeyed: tuple[object, ...] = (True,)) -> None:
    value = checker.tree.at(*path)
    if value is not None and not any(value is each for each in obeyed):
        checker.block_remote(path, "memoryd does not obey this switch")
