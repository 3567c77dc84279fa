"""The settings in force, as other packages see them.

`ResolvedSettings.describe` lists them without secrets, for `memoryd config`. `keep_until_restart` and `changed_keys`
serve a reload while the daemon runs: some keys take effect only after a restart.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import SecretStr

from memoryd_server.credentials import MalformedReference, SecretReference
from memoryd_server.errors import AgentNotFound, SettingsError
from memoryd_server.settings.layers import DEFAULT, Blocker
from memoryd_server.settings.memory import CompactionSettings, MemoryBlock, StartupContextSettings
from memoryd_server.settings.memory_search import MemorySearchSettings
from memoryd_server.settings.plugins import CONFIG as ENTRIES
from memoryd_server.settings.plugins import LanceDbSettings
from memoryd_server.settings.provider_access import ProviderAccess
from memoryd_server.settings.rules import KeyPath, SettingsBlock, dotted, keys
from memoryd_server.settings.service import ServiceSettings

MAIN = "main"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of one agent. Paths are absolute.

    `enabled` is whether memory search is on; if not, `disabled_reason` names the key that disables it. `memory_enabled`
    is whether any call is answered. `provider_access` has the
    embedding providers that the agent may use, `fallback_access` is the access to `memory_search.fallback`, and
    `entry_access` the access to the provider of entries; None if they use the provider of the memory. `agent_dir` is
    the folder of the agent's auth profiles; None for the default one. `no_provider` is empty, or says which setting
    would select a provider.
    """

    agent_id: str
    workspace: Path
    enabled: bool
    memory_enabled: bool
    disabled_reason: str
    memory_search: MemorySearchSettings
    memory: MemoryBlock
    compaction: CompactionSettings
    startup_context: StartupContextSettings
    user_timezone: str | None
    index_path: Path
    default: bool
    provider_access: Mapping[str, ProviderAccess]
    fallback_access: ProviderAccess
    entries_enabled: bool
    entries: LanceDbSettings
    entry_access: ProviderAccess | None
    agent_dir: Path | None = None
    no_provider: str = ""
    memory_get_max_chars: int | None = None

    def search_keys(self) -> Iterator[KeyPath]:
        """Yield the path of each key of `memory_search`."""
        return (path for path, _ in flatten(self.memory_search, ()))

    def accesses(self) -> Iterator[tuple[tuple[str, str], ProviderAccess]]:
        """Yield each known access to a provider, with the path under which `describe` lists it."""
        for name, access in self.provider_access.items():
            if access.known_values():
                yield ("access", name), access
        if self.fallback_access.known_values():
            yield ("fallbackAccess", self.memory_search.fallback_provider), self.fallback_access


@dataclass(frozen=True, slots=True)
class Written:
    """Where a setting was written. `origin` is "default", the path of a file, "env NAME" or "flag --name".

    `key` is the key in the file, and `layout` is "current" or "older" if only one layout has this key.
    """

    origin: str
    key: str = ""
    layout: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """All settings, and the origin of each.

    `written` has every key of `describe`; for the access to a provider, its origin is the source of the key. `layout`
    is the layout of OpenClaw's settings, "current" or "older", which determines the defaults that differ.
    `default_agent` is empty if requests have to name an agent. `child_environment` has the variables that are passed on
    to commands.
    `remote_embeddings_blocked_by` has the settings that are not understood: if there are any, no agent uses a provider
    that is reached over HTTP. `runtime_folder` is memoryd's folder below XDG_RUNTIME_DIR; None if that is not set.
    `session_store` is OpenClaw's `session.store`; empty if it is not set. `rerank_access` is the access to the server
    of `memoryd.rerank`.
    """

    state_dir: Path
    service: ServiceSettings
    agents: Mapping[str, AgentSettings]
    default_agent: str
    warnings: tuple[str, ...]
    written: Mapping[str, Written]
    child_environment: Mapping[str, str] = field(default_factory=dict)
    remote_embeddings_blocked_by: tuple[Blocker, ...] = ()
    runtime_folder: Path | None = None
    layout: str = "older"
    session_store: str = ""
    rerank_access: ProviderAccess = field(default_factory=ProviderAccess)

    @property
    def origins(self) -> Mapping[str, str]:
        """The origin of every key of `describe`."""
        return {key: written.origin for key, written in self.written.items()}

    def agent(self, agent_id: str) -> AgentSettings:
        """Return an agent by its id, ignoring case.

        An empty id means `main` if it is configured, else the default agent.

        Raises:
            AgentNotFound: no agent with this id is configured, or the id is empty and there is no default agent.
        """
        default = MAIN if MAIN in self.agents and self.default_agent else self.default_agent
        wanted = agent_id.strip().lower() or default
        if wanted not in self.agents:
            shown = agent_id[:64]
            raise AgentNotFound(
                f"no agent {shown!r} is configured; configured agents: {', '.join(self.agents)}",
                metadata={"agent_id": shown},
            )
        return self.agents[wanted]

    def blocked_by(self, agent_id: str) -> tuple[str, ...]:
        """Return what disables remote embeddings, for the callers of an agent."""
        return tuple(dict.fromkeys(blocker.visible_to(agent_id) for blocker in self.remote_embeddings_blocked_by))

    def describe(self) -> list[dict[str, object]]:
        """Return every effective setting, ready for JSON; secrets are `***`.

        Each has `key`, `value` and `origin`; from a file, also `writtenAs`, the key in the file, and `layout`, if only
        one layout has this key.
        """
        return [
            {"key": key, "value": mask(value), **_shown_origin(self.written.get(key, Written(DEFAULT)))}
            for key, value in ((dotted(path), value) for path, value in _effective_values(self))
        ]


def _shown_origin(written: Written) -> dict[str, str]:
    shown = {"origin": written.origin, "writtenAs": written.key, "layout": written.layout}
    return {name: text for name, text in shown.items() if text}


RERANK_ACCESS = ("memoryd", "rerank", "access")
"""The path of the access to the reranker's server in `describe`."""


def effective(
    state_dir: Path,
    service: ServiceSettings,
    agents: Mapping[str, AgentSettings],
    blocked_by: Sequence[Blocker] = (),
    *,
    rerank_access: ProviderAccess,
) -> list[tuple[tuple[str, ...], object]]:
    """Return the path and the value of every effective setting, in the order of `describe`."""
    shared = next(iter(agents.values()))
    blocked = [(("remoteEmbeddingsBlockedBy",), [blocker.where for blocker in blocked_by])] if blocked_by else []
    return [
        (("stateDir",), state_dir),
        *blocked,
        *flatten(service, ("memoryd",)),
        *(((RERANK_ACCESS, known),) if (known := rerank_access.known_values()) else ()),
        *flatten(shared.memory, ("memory",)),
        *flatten(shared.entries, ENTRIES),
        *flatten(shared.compaction, ("agents", "defaults", "compaction")),
        *flatten(shared.startup_context, ("agents", "defaults", "startupContext")),
        (("agents", "defaults", "userTimezone"), shared.user_timezone),
        *(entry for agent in agents.values() for entry in _of_agent(agent)),
    ]


def _of_agent(agent: AgentSettings) -> list[tuple[tuple[str, ...], object]]:
    parent = ("agents", "list", f"[{agent.agent_id}]")
    return [
        ((*parent, "default"), agent.default),
        ((*parent, "workspace"), agent.workspace),
        *((((*parent, "agentDir"), agent.agent_dir),) if agent.agent_dir else ()),
        ((*parent, "enabled"), agent.enabled),
        *flatten(agent.memory_search, (*parent, "memorySearch")),
        ((*parent, "contextLimits", "memoryGetMaxChars"), agent.memory_get_max_chars),
        *(((*parent, *path), access.known_values()) for path, access in agent.accesses()),
    ]


MASK = "***"

# Credentials in a URL: `https://user:secret@host` and `?key=secret`.
_USERINFO = re.compile(r"//[^/?#]*@")
_QUERY = re.compile(r"(?<=[?&])([^=&#\s]++)(=[^&#\s]*)?")


def flatten(block: SettingsBlock, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    """Yield the path and the value of each key of a block and of the blocks in it."""
    for name, key, _ in keys(type(block)):
        value = getattr(block, name)
        if isinstance(value, SettingsBlock) and not _is_whole(key):
            yield from flatten(value, (*path, key))
        else:
            yield (*path, key), value


def mask(value: object) -> object:
    """Return a value ready for JSON. Secrets are replaced by `***`, as are credentials in a URL."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, SecretReference | MalformedReference):
        return f"SecretRef {value}" if isinstance(value, SecretReference) else "a malformed SecretRef"
    if isinstance(value, SettingsBlock):
        return {key: mask(getattr(value, name)) for name, key, _ in keys(type(value))}
    if isinstance(value, Mapping):
        return {key: mask(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item) for item in value]
    return _without_credentials(str(value)) if isinstance(value, str | Path) else value


def _without_credentials(text: str) -> str:
    if "://" not in text:
        return text
    shown = _USERINFO.sub(f"//{MASK}@", text)
    return _QUERY.sub(lambda named: named[0] if named[2] is None else f"{named[1]}={MASK}", shown)


def _is_whole(key: str) -> bool:
    return key == "scope"


# Keys of the `memoryd` block that take effect only after a restart: the listeners, and the model, the
# database and the reader processes that agents share.
RESTART_KEYS: tuple[str, ...] = ("listen", "token_file", "tls", "local", "metrics", "http", "store", "readers")

_ACCESS = re.compile(r"\]\.(?:access|fallbackAccess)\.")


def keep_until_restart(old: ResolvedSettings, loaded: ResolvedSettings) -> ResolvedSettings:
    """Return `loaded` with the old values of the keys that take effect only after a restart.

    Raises:
        SettingsError: the state directory has changed, so the settings cannot be compared.
    """
    if loaded.state_dir != old.state_dir:
        raise SettingsError(
            f"the state directory is now {loaded.state_dir}, but the daemon uses {old.state_dir}; restart the daemon"
        )
    kept = {name: getattr(old.service, name) for name in RESTART_KEYS}
    kept["log"] = loaded.service.log.model_copy(update={"format": old.service.log.format})
    connections = old.service.limits.max_connections
    kept["limits"] = loaded.service.limits.model_copy(update={"max_connections": connections})
    return replace(loaded, service=loaded.service.model_copy(update=kept))


def changed_keys(old: ResolvedSettings, new: ResolvedSettings) -> tuple[str, ...]:
    """Return the keys whose values differ, in the order of `describe`.

    An agent that was added or removed is one key.
    """
    before, after = _values(_with_differing_agents(old, new)), _values(_with_differing_agents(new, old))
    came_or_went = sorted(old.agents.keys() ^ new.agents.keys())
    moved = tuple(dotted(("agents", "list", f"[{agent_id}]")) for agent_id in came_or_went)
    keys = [key for key in {**before, **after} if not key.startswith(moved)]
    changed = [key for key in keys if key not in before or key not in after or before[key] != after[key]]
    if any(".memorySearch.remote." in key for key in changed):
        # The access to each provider derives from `remote`, and would be listed once per provider.
        changed = [key for key in changed if not _ACCESS.search(key)]
    if any(key.startswith("memoryd.rerank.") for key in changed if key != dotted(RERANK_ACCESS)):
        changed = [key for key in changed if key != dotted(RERANK_ACCESS)]
    return (*changed, *moved)


def _with_differing_agents(settings: ResolvedSettings, others: ResolvedSettings) -> ResolvedSettings:
    """Return the settings with the agents that the others do not have, and the first ones, which have the shared keys.

    The keys of twenty thousand equal agents would take hundreds of megabytes.
    """
    first = {next(iter(each.agents)) for each in (settings, others)}
    return replace(
        settings,
        agents={
            agent_id: agent
            for agent_id, agent in settings.agents.items()
            if agent_id in first or agent != others.agents.get(agent_id)
        },
    )


def _values(settings: ResolvedSettings) -> Mapping[str, object]:
    return {dotted(path): value for path, value in _effective_values(settings)}


def _effective_values(settings: ResolvedSettings) -> list[tuple[tuple[str, ...], object]]:
    return effective(
        settings.state_dir,
        settings.service,
        settings.agents,
        settings.remote_embeddings_blocked_by,
        rerank_access=settings.rerank_access,
    )
