"""Settings that memoryd does not understand or does not read, and that may restrict what is sent to providers.

Each of them disables remote embeddings:

- memory settings in a place where memoryd does not read them, and switches of `plugins` that it does not obey
- variables and files with settings of OpenClaw, or with the prefix of memoryd, that it does not read
- settings of a provider in use that it does not understand
"""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from memoryd_server.settings import environment as env
from memoryd_server.settings.checking import CLOSE, Checker, agent_of, find_misspelt, ignored_message
from memoryd_server.settings.includes import INCLUDE, FailedInclude
from memoryd_server.settings.layers import Findings, exists, is_about_providers
from memoryd_server.settings.locations import Locations
from memoryd_server.settings.plugins import ENTRY as ENTRIES_PLUGIN_ENTRY
from memoryd_server.settings.plugins import PLUGIN as ENTRIES_PLUGIN
from memoryd_server.settings.provider_access import (
    KEYLESS,
    PROVIDERS,
    MissingSecret,
    ModelProviderSettings,
    ProviderAccess,
    gateway_names,
)
from memoryd_server.settings.resolved import AgentSettings
from memoryd_server.settings.rules import KeyPath, keys, kind_of, nearest

_AGENT_DEPTH = 3
_MEMORY_SEARCH = "memorySearch"
_ENTRIES = ("agents", "entries")
_MEMORY_PLUGIN = "memory-core"
_MEMORY_PLUGIN_ENTRY = ("plugins", "entries", _MEMORY_PLUGIN)
_MEMORY_PLUGIN_CONFIG = (*_MEMORY_PLUGIN_ENTRY, "config")
# Part of the names of plugins that delegate to memoryd.
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
# Keys about embeddings in `memorySearch` and `memory.search`.
_OF_MEMORY = ("memory", "search", "provider", "fallback", "remote", "embedding", "embeddings")


def check_places(checker: Checker, agent_paths: Iterable[KeyPath]) -> None:
    """Block remote embeddings for each memory setting in a place where memoryd does not read it.

    `agent_paths` are the paths of the agents.
    """
    agents = [("agents", "defaults"), *agent_paths]
    for path, origin, value in checker.tree.replaced:
        if is_about_providers(path):
            message = f"expected an object, found {kind_of(value)}; it is ignored"
            checker.report.block_remote(origin, path, message, agent_of(path))
    _check_keys(checker, (), read=("memory",))
    for path in agents:
        _check_keys(checker, path, read=("memory",) if path[:2] == _ENTRIES else (_MEMORY_SEARCH,))
    unread = [("agents", name) for name in checker.keys(("agents",)) if name not in {"defaults", "list", "entries"}]
    for path in (("agents",), *unread, _MEMORY_PLUGIN_ENTRY, _MEMORY_PLUGIN_CONFIG):
        _check_keys(checker, path, read=())
    for path in (("agents",), *agents, *unread, _MEMORY_PLUGIN_CONFIG, ("models",), ("plugins",), ENTRIES_PLUGIN_ENTRY):
        check_switches(checker, path)
    _check_plugins(checker)


def check_includes(checker: Checker) -> None:
    """Block remote embeddings for each `$include` that failed, and remove it from the tree.

    An object that has no other key is removed, too, unless it is an agent, because a value of another type may belong
    there.
    """
    for path, owner, reason in tuple(_failed_includes(checker.tree.values)):
        checker.block_remote(path, reason)
        del owner[INCLUDE]
        parent = path[:-1]
        is_agent = len(parent) == _AGENT_DEPTH and parent[0] == "agents"
        if parent and not owner and not is_agent:
            checker.tree.remove(parent)


def _failed_includes(root: dict[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any], str]]:
    """Yield the path, the object and the reason of each `$include` that failed."""
    pending: list[tuple[KeyPath, Any]] = [((), root)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, list):
            pending.extend(((*path, f"[{number}]"), item) for number, item in enumerate(value))
        elif isinstance(value, dict):
            failed = value.get(INCLUDE)
            if isinstance(failed, FailedInclude):
                yield (*path, INCLUDE), value, failed.reason
            pending.extend(((*path, key), inner) for key, inner in value.items())


def _check_keys(checker: Checker, path: KeyPath, *, read: tuple[str, ...]) -> None:
    """Block each memory key at `path` that is not in `read`."""
    for key in checker.keys(path):
        is_search = nearest(key, (_MEMORY_SEARCH,), CLOSE) is not None
        if key not in read and (is_search or key.lower() in _OF_MEMORY):
            checker.block_remote((*path, key), "memoryd does not read this key here")


def check_switches(checker: Checker, path: KeyPath) -> None:
    """Block remote embeddings for `enabled` and `disabled` at `path` if they may disable something."""
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
    """Block remote embeddings if OpenClaw's settings disable a plugin on which memory depends."""
    check_switches(checker, ("plugins", "entries", plugin))
    denied = checker.tree.at("plugins", "deny")
    if denied is not None and (not isinstance(denied, list) or any(_is_denied(plugin, name) for name in denied)):
        checker.block_remote(("plugins", "deny"), "memoryd does not obey it")


def _is_allowed(plugin: str, name: object) -> bool:
    return isinstance(name, str) and (name == plugin or _OWN in name)


def _is_denied(plugin: str, name: object) -> bool:
    """Return whether `name` may mean the plugin: in another case, as a pattern, or in an unknown form."""
    return not isinstance(name, str) or fnmatchcase(plugin.lower(), name.strip().lower())


_UNREAD = "memoryd does not read it"
# Of an older version.
_OLDEST_FILE = "moltbot.json"
_ABOUT_PROVIDERS = frozenset(
    {
        *("provider", "providers", "embedding", "embeddings", "search", "remote", "fallback", "offline"),
        *("rerank", "reranker", "reranking"),
    }
)


def check_files(locations: Locations, report: Findings) -> None:
    """Block remote embeddings if OpenClaw's settings are in a file that memoryd does not read."""
    other = locations.state_dir / _OLDEST_FILE
    if not exists(locations.openclaw_file) and exists(other):
        report.block_remote(other, (), _UNREAD)


def check_variables(environ: Mapping[str, str], report: Findings) -> None:
    """Block remote embeddings for unknown variables of memoryd that seem to be about providers or files."""
    for name in env.unknown_variables(environ):
        words = set(name.lower().split("_"))
        files = (env.CONFIG, env.STATE_DIR, env.WORKSPACE)
        if words & _ABOUT_PROVIDERS or nearest(name, files, CLOSE):
            report.block_remote(f"env {name}", (), _UNREAD)


_BROKEN = "the file cannot be read, and a key from another source would be used"
# Other programs read the base URL of a provider from these.
_ADDRESSES: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "gemini": ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
    "voyage": ("VOYAGE_BASE_URL",),
    "mistral": ("MISTRAL_BASE_URL",),
}
_ENTRIES_PROVIDER = "openai"


class _Use(NamedTuple):
    """A provider that an agent may use; `provider` is memoryd's name of it."""

    agent_id: str
    provider: str
    access: ProviderAccess

    @property
    def may_send(self) -> bool:
        """Return whether requests are possible: there is a key, an address or headers, or the provider needs no key."""
        access = self.access
        return bool(access.keys or access.base_url or access.headers) or self.provider in KEYLESS


def check_providers(checker: Checker, agents: Mapping[str, AgentSettings], environ: Mapping[str, str]) -> None:
    """Block remote embeddings for each setting of a provider in use that memoryd does not understand.

    A secret without a value is a warning: only the agents that need it are affected.
    """
    uses = [use for agent in agents.values() if agent.enabled or _has_entries(agent) for use in _uses(agent)]
    for use in uses:
        passed_over = use.access.passed_over
        if passed_over is not None:
            checker.report.block_remote(passed_over.origin, passed_over.key, _BROKEN, use.agent_id)
        if use.access.keys and not use.access.base_url:
            _check_address(checker, use.provider, environ)
    _warn_of_missing_secrets(checker, uses)
    for name in sorted({name for use in uses if use.may_send for name in gateway_names(use.provider)}):
        _check_block(checker, name)
        check_plugin(checker, name)


def _warn_of_missing_secrets(checker: Checker, uses: Iterable[_Use]) -> None:
    affected: dict[tuple[MissingSecret, str], list[str]] = {}
    for use in uses:
        if use.access.missing is not None and use.provider != "none":
            affected.setdefault((use.access.missing, use.agent_id), []).append(use.provider)
    for (missing, agent_id), names in affected.items():
        effect = f"agent {agent_id} cannot use {', '.join(dict.fromkeys(names))} until it does, and uses no other key"
        message = f"a SecretRef that does not resolve: {missing.reason}; {effect}"
        checker.report.warn(missing.place.origin, missing.place.key, message)


def _has_entries(agent: AgentSettings) -> bool:
    return agent.memory_enabled and agent.entries_enabled


def _uses(agent: AgentSettings) -> Iterator[_Use]:
    for name, access in agent.provider_access.items():
        yield _Use(agent.agent_id, name, access)
    yield _Use(agent.agent_id, agent.memory_search.fallback_provider, agent.fallback_access)
    if agent.entries_enabled and agent.entry_access is not None:
        yield _Use(agent.agent_id, _ENTRIES_PROVIDER, agent.entry_access)


def _check_address(checker: Checker, provider: str, environ: Mapping[str, str]) -> None:
    for variable in _ADDRESSES.get(provider, ()):
        if environ.get(variable, "").strip():
            checker.report.block_remote(
                f"env {variable}", (), f"memoryd does not read it; models.providers.{provider}.baseUrl sets the address"
            )


def _check_block(checker: Checker, name: str) -> None:
    """Check the keys of the provider's block. If there is no block, check for a misspelt id."""
    blocks = checker.keys(PROVIDERS)
    if name not in blocks:
        for key, meant in find_misspelt(blocks, (name,)):
            checker.block_remote((*PROVIDERS, key), ignored_message(meant))
    path = (*PROVIDERS, name)
    check_switches(checker, path)
    for key, meant in find_misspelt(checker.keys(path), [key for _, key, _ in keys(ModelProviderSettings)]):
        checker.block_remote((*path, key), ignored_message(meant))
