"""Where each setting in force was written: the file, variable or flag, and the key with its layout."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from memoryd_server.settings.environment import SourcedValue
from memoryd_server.settings.layers import DEFAULT, SettingsTree
from memoryd_server.settings.layouts import CURRENT, OLDER, SHARED_SEARCH, search_of
from memoryd_server.settings.provider_access import ProviderAccess
from memoryd_server.settings.resolved import RERANK_ACCESS, AgentSettings, Written, effective
from memoryd_server.settings.roster import DEFAULTS, ENTRIES, LIST, AgentPlace
from memoryd_server.settings.rules import KeyPath, dotted
from memoryd_server.settings.service import ServiceSettings
from memoryd_server.settings.variables import Variables

_SLOT = ("plugins", "slots", "memory")
_SEARCH = "memorySearch"


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of the settings of one load. `state_dir` and `workspace` are those of a flag or a variable.

    `default_workspace` is OpenClaw's. `in_entries` is whether agents are configured in `agents.entries`. `variables`
    has the files of the variables that have keys.
    """

    tree: SettingsTree
    state_dir: SourcedValue
    workspace: SourcedValue
    default_workspace: SourcedValue
    in_entries: bool
    variables: Variables

    def table(
        self,
        state_dir: Path,
        service: ServiceSettings,
        agents: Mapping[str, AgentSettings],
        rerank_access: ProviderAccess,
    ) -> Mapping[str, Written]:
        """Return where each key of `ResolvedSettings.describe` was written."""
        return _OriginTable(lambda: self._table(state_dir, service, agents, rerank_access))

    def _table(
        self,
        state_dir: Path,
        service: ServiceSettings,
        agents: Mapping[str, AgentSettings],
        rerank_access: ProviderAccess,
    ) -> dict[str, Written]:
        keys = effective(state_dir, service, agents, rerank_access=rerank_access)
        found = {dotted(path): self._written((path,)) for path, _ in keys}
        found["stateDir"] = Written(self.state_dir.origin)
        if dotted(RERANK_ACCESS) in found:
            found[dotted(RERANK_ACCESS)] = Written(rerank_access.key_from or DEFAULT)
        for agent_id, agent in agents.items():
            found.update({dotted(path): written for path, written in self._of_agent(agent_id, agent)})
        return found

    def _of_agent(self, agent_id: str, agent: AgentSettings) -> Iterator[tuple[KeyPath, Written]]:
        place, shown = AgentPlace.of(agent_id), (*LIST, f"[{agent_id}]")
        yield (*shown, "default"), self._written((place.path_of(self.tree, "default"),))
        yield (*shown, "workspace"), self._workspace(place, agent)
        enabled = self._of_search(place, ("enabled",))
        yield (*shown, "enabled"), enabled if agent.memory_enabled else self._written((_SLOT,))
        for path in agent.search_keys():
            yield (*shown, _SEARCH, *path), self._of_search(place, path)
        limit = ("contextLimits", "memoryGetMaxChars")
        yield (*shown, *limit), self._written((place.path_of(self.tree, *limit), (*DEFAULTS, *limit)))
        if agent.agent_dir:
            yield (*shown, "agentDir"), self._written((place.path_of(self.tree, "agentDir"),))
        for path, access in agent.accesses():
            origin = access.key_from or DEFAULT
            yield (*shown, *path), Written(self.variables.origins.get(origin.removeprefix("env "), origin))

    def _of_search(self, place: AgentPlace, key: KeyPath) -> Written:
        return self._written(each.path_of(self.tree, *key) for each in (search_of(place), SHARED_SEARCH))

    def _workspace(self, place: AgentPlace, agent: AgentSettings) -> Written:
        if agent.default and self.workspace.text:
            return Written(self.workspace.origin)
        own = place.path_of(self.tree, "workspace")
        shares = agent.default or self.in_entries
        written = self._written((own, (*DEFAULTS, "workspace")) if shares else (own,))
        if not written.key and str(agent.workspace) == self.default_workspace.text:
            return Written(self.default_workspace.origin)
        return written

    def _written(self, paths: "Iterator[KeyPath] | Sequence[KeyPath]") -> Written:
        """Return where the first of these keys that is set was written."""
        for path in paths:
            origin = self.tree.exact_origin(path)
            if origin is not None:
                return Written(origin, dotted(path), _layout(path))
        return Written(DEFAULT)


class _OriginTable(Mapping[str, Written]):
    """Where each key was written. Made when it is first read: for many agents, it is larger than their settings."""

    def __init__(self, make: Callable[[], dict[str, Written]]) -> None:
        self._make = make

    @cached_property
    def _written(self) -> dict[str, Written]:
        return self._make()

    def __getitem__(self, key: str) -> Written:
        return self._written[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._written)

    def __len__(self) -> int:
        return len(self._written)


def _layout(path: KeyPath) -> str:
    """Return the layout to which a key belongs; empty if both layouts have it."""
    if path[:2] in {SHARED_SEARCH.current, ENTRIES}:
        return CURRENT
    return OLDER if path[:2] == LIST or path[:3] == SHARED_SEARCH.older else ""
