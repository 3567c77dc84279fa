"""Settings of memory where memoryd does not look for them, and `plugins` switches that it does not obey.

Each may say that nothing is to be sent to a provider, so each of them disables remote embeddings.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from .checking import Checker, agent_of
from .entries import AROUND as ENTRIES_PLUGIN_ENTRY
from .entries import PLUGIN as ENTRIES_PLUGIN
from .misspelt import CLOSE
from .report import ABOUT_PROVIDERS
from .words import Path, kind_of, nearest

_INCLUDE = "$include"
_MEMORY_SEARCH = "memorySearch"
_MEMORY_PLUGIN = "memory-core"
_MEMORY_PLUGIN_ENTRY = ("plugins", "entries", _MEMORY_PLUGIN)
_MEMORY_PLUGIN_CONFIG = (*_MEMORY_PLUGIN_ENTRY, "config")
# In the names of plugins that send everything to memoryd.
_OWN = "memoryd"
_SLOT = ("plugins", "slots", "memory")
_PLUGINS = (
    ("plugins",),
    ("plugins", "slots"),
    ("plugins", "entries"),
    _MEMORY_PLUGIN_ENTRY,
    _MEMORY_PLUGIN_CONFIG,
    ENTRIES_PLUGIN_ENTRY,
)
# What decides about embeddings, by the names that `memorySearch` and `memory.search` give it.
_OF_MEMORY = ("memory", "search", "provider", "fallback", "remote", "embedding", "embeddings")


def check_places(checker: Checker, agent_paths: Iterable[Path]) -> None:
    """Block remote embeddings for each setting in a place where it is not read; `agent_paths` are those of agents."""
    agents = [("agents", "defaults"), *agent_paths]
    for path in ((), ("agents",), *agents, ("memory",), ("models",), ("models", "providers"), *_PLUGINS):
        check_include(checker, path)
    for path, origin, value in checker.tree.replaced:
        if path[0] in ABOUT_PROVIDERS:
            message = f"expected an object, found {kind_of(value)}; it is ignored"
            checker.report.block_remote(origin, path, message, agent_of(path))
    _check_keys(checker, (), read=("memory",))
    for path in agents:
        _check_keys(checker, path, read=(_MEMORY_SEARCH,))
    unread = [("agents", name) for name in checker.keys(("agents",)) if name not in {"defaults", "list", "entries"}]
    for path in (("agents",), *unread, _MEMORY_PLUGIN_ENTRY, _MEMORY_PLUGIN_CONFIG):
        _check_keys(checker, path, read=())
    for path in (("agents",), *agents, *unread, _MEMORY_PLUGIN_CONFIG, ("models",), ("plugins",), ENTRIES_PLUGIN_ENTRY):
        check_switches(checker, path)
    _check_plugins(checker)


def check_include(checker: Checker, path: Path) -> None:
    """Block remote embeddings for an `$include` at `path`, and take it out of the tree."""
    if _INCLUDE in checker.keys(path):
        checker.block_remote((*path, _INCLUDE), "memoryd does not read included files")
        checker.tree.remove((*path, _INCLUDE))


def _check_keys(checker: Checker, path: Path, *, read: tuple[str, ...]) -> None:
    """Block each key of memory at `path` but those that are `read` there."""
    for key in checker.keys(path):
        is_search = nearest(key, (_MEMORY_SEARCH,), CLOSE) is not None
        if key not in read and (is_search or key.lower() in _OF_MEMORY):
            checker.block_remote((*path, key), "memoryd does not read this key here")


def check_switches(checker: Checker, path: Path) -> None:
    """Block remote embeddings for `enabled` and `disabled` at `path` where they may switch something off."""
    # memoryd itself obeys the switch of entries.
    harmless = {"enabled": (True, False) if path == ENTRIES_PLUGIN_ENTRY else (True,), "disabled": (False,)}
    for key in checker.keys(path):
        value = checker.tree.at(*path, key)
        if key.lower() in harmless and not any(value is each for each in harmless[key.lower()]):
            checker.block_remote((*path, key), "memoryd does not obey this switch")


def _check_plugins(checker: Checker) -> None:
    for path in _PLUGINS:
        value = checker.tree.at(*path)
        if value is not None and not isinstance(value, dict):
            checker.block_remote(path, f"expected an object, found {kind_of(value)}; it is ignored")
    slot = checker.tree.at(*_SLOT)
    plugin = _MEMORY_PLUGIN if slot is None else slot
    if plugin == "none":
        return
    if not isinstance(plugin, str):
        checker.block_remote(_SLOT, f"expected a string, found {kind_of(plugin)}; it is ignored")
    elif plugin not in {_MEMORY_PLUGIN, ENTRIES_PLUGIN} and _OWN not in plugin:
        known = f'"{_MEMORY_PLUGIN}", "{ENTRIES_PLUGIN}" and "none"'
        checker.block_remote(_SLOT, f"memoryd does not know this plugin, but {known}")
    else:
        check_plugin(checker, plugin)
        allowed = checker.tree.at("plugins", "allow")
        names = allowed if isinstance(allowed, list) else ()
        if allowed is not None and not any(_is_allowed(plugin, name) for name in names):
            checker.block_remote(("plugins", "allow"), "memoryd does not obey it")


def check_plugin(checker: Checker, plugin: str) -> None:
    """Block remote embeddings where OpenClaw's settings switch a plugin off that memory depends on there."""
    check_switches(checker, ("plugins", "entries", plugin))
    denied = checker.tree.at("plugins", "deny")
    if denied is not None and (not isinstance(denied, list) or any(_is_denied(plugin, name) for name in denied)):
        checker.block_remote(("plugins", "deny"), "memoryd does not obey it")


def _is_allowed(plugin: str, name: object) -> bool:
    return isinstance(name, str) and (name == plugin or _OWN in name)


def _is_denied(plugin: str, name: object) -> bool:
    """Return whether `name` may mean the plugin: in another case, as a pattern, or in a form that is not known."""
    return not isinstance(name, str) or fnmatchcase(plugin.lower(), name.strip().lower())
