"""The settings in force; changes that need a restart.

The settings as the rest of memoryd sees them.

Settings as lines to print: flat, and with nothing in them that must not be seen.

Settings that are read again while the daemon runs: what of them comes into force, and what waits for a restart.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import SecretStr

from memoryd_server.errors import AgentNotFound, SettingsError
from memoryd_server.settings.layers import DEFAULT, Blocker
from memoryd_server.settings.memory import CompactionSettings, MemoryBlock
from memoryd_server.settings.memory_search import MemorySearchSettings
from memoryd_server.settings.plugins import CONFIG as ENTRIES
from memoryd_server.settings.plugins import LanceDbSettings
from memoryd_server.settings.provider_access import ProviderAccess
from memoryd_server.settings.rules import KeyPath, SettingsBlock, dotted, keys
from memoryd_server.settings.service import ServiceSettings

MAIN = "main"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent: where its memory is, and how it is indexed and searched. Paths are absolute.

    `disabled_reason` names the key that switches memory off; it is empty when `enabled`. `provider_access` has the
    embedding providers that the agent may use, `fallback_access` is that of `memory_search.fallback`, `entry_access`
    that of entries where they have a provider of their own.
    """

    agent_id: str
    workspace: Path
    enabled: bool
    disabled_reason: str
    memory_search: MemorySearchSettings
    memory: MemoryBlock
    compaction: CompactionSettings
    user_timezone: str | None
    index_path: Path
    default: bool
    provider_access: Mapping[str, ProviderAccess]
    fallback_access: ProviderAccess
    entries_enabled: bool
    entries: LanceDbSettings
    entry_access: ProviderAccess | None

    def accesses(self) -> Iterator[tuple[tuple[str, str], ProviderAccess]]:
        """What is known of how providers are reached, each with the path that it is shown at."""
        for name, access in self.provider_access.items():
            if access.parts():
                yield ("access", name), access
        if self.fallback_access.parts():
            yield ("fallbackAccess", self.memory_search.fallback), self.fallback_access


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """Everything that was configured, and who said so.

    `origins` has every key of `describe`: "default", a file's path, "env NAME" or "flag --name", and of a provider's
    access the place of its key. `child_environment` are the variables that commands get which memoryd runs.
    `remote_embeddings_blocked_by` has the settings that are not understood: with any, no agent uses a provider that is
    reached over HTTP.
    """

    state_dir: Path
    service: ServiceSettings
    agents: Mapping[str, AgentSettings]
    default_agent: str
    warnings: tuple[str, ...]
    origins: Mapping[str, str]
    child_environment: Mapping[str, str] = field(default_factory=dict)
    remote_embeddings_blocked_by: tuple[Blocker, ...] = ()

    def agent(self, agent_id: str) -> AgentSettings:
        """The agent of that id, in any case. An empty id means `main` where it is configured, else the default agent.

        Raises:
            AgentNotFound: none of that id is configured.
        """
        wanted = agent_id.strip().lower() or (MAIN if MAIN in self.agents else self.default_agent)
        if wanted not in self.agents:
            shown = agent_id[:64]
            raise AgentNotFound(
                f"no agent {shown!r} is configured; there are: {', '.join(self.agents)}", metadata={"agent_id": shown}
            )
        return self.agents[wanted]

    def blocked_by(self, agent_id: str) -> tuple[str, ...]:
        """Return what disables remote embeddings, as the callers of an agent may read it."""
        return tuple(dict.fromkeys(blocker.shown_to(agent_id) for blocker in self.remote_embeddings_blocked_by))

    def describe(self) -> list[dict[str, object]]:
        """`key`, `value` and `origin` of every effective value, ready for JSON, secrets as `***`."""
        return [
            {"key": key, "value": masked(value), "origin": self.origins.get(key, DEFAULT)}
            for key, value in (
                (dotted(path), value)
                for path, value in effective(
                    self.state_dir, self.service, self.agents, self.remote_embeddings_blocked_by
                )
            )
        ]


def effective(
    state_dir: Path,
    service: ServiceSettings,
    agents: Mapping[str, AgentSettings],
    blocked_by: Sequence[Blocker] = (),
) -> list[tuple[tuple[str, ...], object]]:
    """The path and value of every effective setting, in the order to show them."""
    shared = next(iter(agents.values()))
    blocked = [(("remoteEmbeddingsBlockedBy",), [blocker.where for blocker in blocked_by])] if blocked_by else []
    return [
        (("stateDir",), state_dir),
        *blocked,
        *flattened(service, ("memoryd",)),
        *flattened(shared.memory, ("memory",)),
        *flattened(shared.entries, ENTRIES),
        *flattened(shared.compaction, ("agents", "defaults", "compaction")),
        (("agents", "defaults", "userTimezone"), shared.user_timezone),
        *(entry for agent in agents.values() for entry in _of_agent(agent)),
    ]


def _of_agent(agent: AgentSettings) -> list[tuple[tuple[str, ...], object]]:
    around = ("agents", "list", f"[{agent.agent_id}]")
    return [
        ((*around, "default"), agent.default),
        ((*around, "workspace"), agent.workspace),
        ((*around, "enabled"), agent.enabled),
        *flattened(agent.memory_search, (*around, "memorySearch")),
        *(((*around, *path), access.parts()) for path, access in agent.accesses()),
    ]


MASK = "***"

# `https://user:secret@host` and `?key=secret`: credentials that stand in an address.
_USERINFO = re.compile(r"//[^/?#]*@")
_QUERY = re.compile(r"(?<=[?&])([^=&#\s]++)(=[^&#\s]*)?")


def flattened(block: SettingsBlock, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    """The path and value of everything in a block that is not a block itself, by the keys that files use."""
    for name, key, _ in keys(type(block)):
        value = getattr(block, name)
        if isinstance(value, SettingsBlock) and not _is_whole(key):
            yield from flattened(value, (*path, key))
        else:
            yield (*path, key), value


def masked(value: object) -> object:
    """A value ready for JSON. A secret becomes `***`, also one within an address."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, SettingsBlock):
        return {key: masked(getattr(value, name)) for name, key, _ in keys(type(value))}
    if isinstance(value, Mapping):
        return {key: masked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return _without_credentials(str(value)) if isinstance(value, str | Path) else value


def _without_credentials(text: str) -> str:
    if "://" not in text:
        return text
    shown = _USERINFO.sub(f"//{MASK}@", text)
    return _QUERY.sub(lambda named: named[0] if named[2] is None else f"{named[1]}={MASK}", shown)


def _is_whole(key: str) -> bool:
    return key == "scope"


# Keys of the `memoryd` block with which the daemon was built: its listeners, and the model that agents share.
WAITING: tuple[str, ...] = ("listen", "token_file", "tls", "local", "metrics")

_ACCESS = re.compile(r"\]\.(?:access|fallbackAccess)\.")


def brought_into_force(old: ResolvedSettings, loaded: ResolvedSettings) -> ResolvedSettings:
    """`loaded`, with the old values of the keys that wait for a restart.

    Raises:
        SettingsError: the state directory is another one, so that nothing can be compared.
    """
    if loaded.state_dir != old.state_dir:
        raise SettingsError(
            f"the state directory would now be {loaded.state_dir}, and the daemon runs on {old.state_dir}; restart it"
        )
    kept = {name: getattr(old.service, name) for name in WAITING}
    kept["log"] = loaded.service.log.model_copy(update={"format": old.service.log.format})
    connections = old.service.limits.max_connections
    kept["limits"] = loaded.service.limits.model_copy(update={"max_connections": connections})
    return replace(loaded, service=loaded.service.model_copy(update=kept))


def changed_keys(old: ResolvedSettings, new: ResolvedSettings) -> tuple[str, ...]:
    """The keys whose values differ, in the order of `describe`. An agent that came or went is one key, itself."""
    before, after = _values(old), _values(new)
    came_or_went = sorted(old.agents.keys() ^ new.agents.keys())
    moved = tuple(dotted(("agents", "list", f"[{agent_id}]")) for agent_id in came_or_went)
    keys = [key for key in {**before, **after} if not key.startswith(moved)]
    changed = [key for key in keys if key not in before or key not in after or before[key] != after[key]]
    if any(".memorySearch.remote." in key for key in changed):
        # The access to each provider is made of it, and would be told once for each.
        changed = [key for key in changed if not _ACCESS.search(key)]
    return (*changed, *moved)


def _values(settings: ResolvedSettings) -> Mapping[str, object]:
    values = effective(settings.state_dir, settings.service, settings.agents, settings.remote_embeddings_blocked_by)
    return {dotted(path): value for path, value in values}
