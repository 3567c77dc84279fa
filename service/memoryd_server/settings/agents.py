"""The `agents` block: the configured agents by id, each resolved into `AgentSettings`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from memoryd_server.credentials import SecretSources, UnresolvedSecret
from memoryd_server.settings.auth_profiles import ProfileReader, Profiles
from memoryd_server.settings.checking import Checker
from memoryd_server.settings.layers import merge
from memoryd_server.settings.layouts import CURRENT, GLOBAL_SEARCH, OLDER, SHARED_SEARCH, Layout, SearchPlace, search_of
from memoryd_server.settings.memory import CompactionSettings, ContextLimits, MemoryBlock, StartupContextSettings
from memoryd_server.settings.memory_search import MemorySearchSettings
from memoryd_server.settings.plugins import LanceDbSettings, entries_are_enabled, entry_access, lancedb_settings
from memoryd_server.settings.provider_access import (
    PROVIDERS,
    AccessSources,
    ModelProviders,
    ProviderAccess,
    model_providers,
    with_known_provider,
    with_secrets,
)
from memoryd_server.settings.rerank_access import rerank_access, rerank_settings, warn_of_missing_secret
from memoryd_server.settings.resolved import AgentSettings
from memoryd_server.settings.restrictions import check_providers
from memoryd_server.settings.roster import (
    DEFAULTS,
    AgentPlace,
    agent_places,
    default_agent,
    marked_agents,
)
from memoryd_server.settings.rules import KeyPath, dotted, keys, nearest
from memoryd_server.settings.service import check_timezone
from memoryd_server.settings.substitution import unset_variable
from memoryd_server.settings.variables import Variables

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ResolveContext:
    """What agents are resolved against.

    `workspace` is the one of a flag or a variable of memoryd; empty if neither is set. `default_workspace` is
    OpenClaw's. `variables` are those of the process and of the files. `layout` determines the defaults, and
    `in_entries` is whether agents are configured in `agents.entries`, whose rules of workspaces then apply. `secrets`
    is where the secrets are read to which the settings refer; None if neither these nor auth profiles are read.
    """

    state_dir: Path
    workspace: str
    default_workspace: Path
    variables: Variables
    layout: Layout
    in_entries: bool
    secrets: SecretSources | None


class ResolvedAgents(NamedTuple):
    """The agents by id, the id of the default agent (empty if there is none), and the access to the reranker."""

    agents: dict[str, AgentSettings]
    default: str
    rerank_access: ProviderAccess


def resolve_agents(checker: Checker, context: ResolveContext) -> ResolvedAgents:
    """Return the agents, and the access to the reranker, which they share.

    The result is meaningful only if `checker` has no problem.
    """
    places = agent_places(checker.tree)
    marked = marked_agents(checker, places)
    default = default_agent(checker, places, marked)
    sharing = _sharing(context, places, marked, default)
    memory = _memory_block(checker)
    compaction = _compaction(checker)
    startup_context = _startup_context(checker)
    timezone = _timezone(checker)
    limits = _context_limits(checker, DEFAULTS)
    base = _memory_search(checker, SHARED_SEARCH)
    providers = model_providers(checker)
    entries = lancedb_settings(checker, context.state_dir, context.variables.values)
    # Agents without settings of their own share one object: with thousands of agents, that saves most of the memory.
    common = _resolved_search(base, {}, checker, context.layout)
    searches, workspaces, unset = {}, {}, {}
    for agent_id, place in places.items():
        _check_entry(checker, place)
        own = _memory_search(checker, search_of(place))
        resolved = _resolved_search(base, own, checker, context.layout) if own else common
        searches[agent_id] = resolved.with_index(agent_id, context.state_dir)
        _warn_of_ignored_sessions(
            checker, search_of(place) if "sources" in own else SHARED_SEARCH, searches[agent_id].search
        )
        workspace = _workspace(checker, place, context, shares=agent_id in sharing, default=agent_id == default)
        workspaces[agent_id] = workspace
        unset[agent_id] = unset_variable(str(workspace), context.variables.values)
    all_sources = _access_sources(checker, context, searches, providers, entries, unset=unset)
    agents: dict[str, AgentSettings] = {}
    access: Mapping[str, ProviderAccess] = {}
    fallback = ProviderAccess()
    for agent_id, place in places.items():
        search, sources = searches[agent_id].search, all_sources[agent_id]
        reason = _disabled_reason(checker, place, search, unset[agent_id])
        own_limits = _context_limits(checker, place.path_of(checker.tree, "contextLimits")[:-1])
        # Equal accesses are shared, as the settings are.
        access, fallback = _same(sources.usable(search), access), _same(sources.fallback(search), fallback)
        agents[agent_id] = AgentSettings(
            agent_id=agent_id,
            workspace=workspaces[agent_id],
            enabled=not reason,
            memory_enabled=not _has_no_memory(checker) and not unset[agent_id],
            disabled_reason=reason,
            memory_search=search,
            memory=memory,
            compaction=compaction,
            startup_context=startup_context,
            user_timezone=timezone,
            index_path=Path(search.store.path),
            default=agent_id == default,
            provider_access=access,
            fallback_access=fallback,
            entries_enabled=entries_are_enabled(checker),
            entries=entries,
            entry_access=entry_access(entries, sources),
            agent_dir=_agent_dir(checker, place),
            no_provider=searches[agent_id].no_provider,
            memory_get_max_chars=own_limits.memory_get_max_chars or limits.memory_get_max_chars,
        )
    _refuse_shared_indexes(checker, agents)
    reranker = rerank_access(rerank_settings(checker), all_sources[_RERANKER])
    if not checker.report.problems:
        # With a problem, the agents have the default providers.
        check_providers(checker, agents, context.variables.values)
        warn_of_missing_secret(checker, reranker)
    return ResolvedAgents(agents, default, reranker)


def _same(value: _T, before: _T) -> _T:
    """Return `before` if it equals the value."""
    return before if value == before else value


def _memory_block(checker: Checker) -> MemoryBlock:
    path = GLOBAL_SEARCH[:1]
    raw = {key: value for key, value in checker.table(path).items() if key != GLOBAL_SEARCH[1]}
    known = [key for _, key, _ in keys(MemoryBlock)]
    for key in [key for key in raw if key not in known and nearest(key, (*known, "search")) == "search"]:
        checker.problem((*path, key), 'unknown key (did you mean "search"?)')
        del raw[key]
    return checker.block(MemoryBlock, raw, path)


def _check_entry(checker: Checker, place: AgentPlace) -> None:
    """Check the keys of `memory` in an agent's entry: it has only `search`."""
    path = (*place.entry, "memory")
    for key in checker.keys(path):
        if key != "search":
            meant = ' (did you mean "search"?)' if nearest(key, ("search",)) else ""
            checker.problem((*path, key), f"unknown key{meant}")


def _compaction(checker: Checker) -> CompactionSettings:
    path = (*DEFAULTS, "compaction")
    raw = checker.table(path)
    ours: dict[str, Any] = {
        key: raw[key] for key in ("reserveTokensFloor", "postIndexSync", "memoryFlush") if key in raw
    }
    return checker.block(CompactionSettings, ours, path)


def _startup_context(checker: Checker) -> StartupContextSettings:
    path = (*DEFAULTS, "startupContext")
    raw = checker.table(path)
    ours = {key: raw[key] for _, key, _ in keys(StartupContextSettings) if key in raw}
    return checker.block(StartupContextSettings, ours, path)


def _timezone(checker: Checker) -> str | None:
    """Return the name of the users' time zone; None for the host's, which replaces an unknown one."""
    path = (*DEFAULTS, "userTimezone")
    name = checker.text(path)
    complaint = check_timezone(name) if name else None
    if complaint:
        checker.warn(path, f"{complaint}; the host's time zone is used")
    return None if complaint else name or None


def _context_limits(checker: Checker, parent: KeyPath) -> ContextLimits:
    path = (*parent, "contextLimits")
    raw = checker.table(path)
    return checker.block(ContextLimits, {key: raw[key] for _, key, _ in keys(ContextLimits) if key in raw}, path)


def _memory_search(checker: Checker, place: SearchPlace) -> dict[str, Any]:
    own_ids = checker.keys(PROVIDERS)
    for path in place.paths:
        checker.block(MemorySearchSettings, with_known_provider(checker.table(path), own_ids), path)
    return place.merged(checker)


@dataclass(frozen=True, slots=True)
class _ResolvedSearch:
    """An agent's memory settings. `no_provider` says which setting selects a provider, if the layout requires one."""

    search: MemorySearchSettings
    no_provider: str = ""

    def with_index(self, agent_id: str, state_dir: Path) -> "_ResolvedSearch":
        """Return these settings with the path of the agent's index."""
        template = self.search.store.path.strip() or str(state_dir / "memory" / "{agentId}.memoryd.sqlite")
        store = self.search.store.model_copy(update={"path": template.replace("{agentId}", agent_id)})
        return replace(self, search=self.search.model_copy(update={"store": store}))


def _resolved_search(
    base: Mapping[str, Any], own: Mapping[str, Any], checker: Checker, layout: Layout
) -> _ResolvedSearch:
    if checker.report.problems:
        return _ResolvedSearch(MemorySearchSettings())
    merged = merge(base, own)
    merged["extraPaths"] = [*base.get("extraPaths", ()), *own.get("extraPaths", ())]
    if layout.name != CURRENT:
        return _ResolvedSearch(MemorySearchSettings.model_validate(merged))
    merged.setdefault("rememberAcrossConversations", layout.remembers)
    merged["remote"] = merge({"batch": {"enabled": False}}, merged.get("remote", {}))
    provider = str(merged.get("provider", "")).strip()
    # OpenClaw's default is `openai`, but memoryd sends nothing to a provider that no setting names.
    merged["provider"] = {"": "none", "auto": "openai"}.get(provider, provider)
    search = MemorySearchSettings.model_validate(merged)
    if search.provider == _COMPATIBLE and not str(merged.get("model", "")).strip():
        # OpenClaw has no default model for it. The provider is refused without one.
        search = search.model_copy(update={"model": ""})
    return _ResolvedSearch(search, "" if provider else _NO_PROVIDER)


_COMPATIBLE = "openai-compatible"
_NO_PROVIDER = (
    f'{dotted(GLOBAL_SEARCH)}.provider is not set; set it to "openai" for the provider that OpenClaw uses by default'
)


def _warn_of_ignored_sessions(checker: Checker, place: SearchPlace, search: MemorySearchSettings) -> None:
    """Warn if the sources at `place` name transcripts that the agent may not index."""
    path = place.path_of(checker.tree, "sources")
    named = () if checker.report.problems else checker.tree.at(*path) or ()
    if "sessions" in named and "sessions" not in search.sources:
        reason = "memorySearch.experimental.sessionMemory is not true"
        if path[:-1] == place.current:
            reason = "neither experimental.sessionMemory nor rememberAcrossConversations is true"
        indexed = ", ".join(search.sources)
        checker.warn(path, f'"sessions" is ignored, because {reason}; only {indexed} is indexed')


# The reranker's place among the agents, whose ids are not empty.
_RERANKER = ""


def _access_sources(
    checker: Checker,
    context: ResolveContext,
    searches: Mapping[str, _ResolvedSearch],
    providers: ModelProviders,
    entries: LanceDbSettings,
    *,
    unset: Mapping[str, str],
) -> dict[str, AccessSources]:
    """Return the sources of addresses and keys of each agent and of the reranker, with the secrets that they need.

    An agent with a variable in `unset` has no memory, and needs none.
    """
    no_secrets = SecretSources({}, {}, context.variables.values, context.state_dir, context.state_dir)
    secrets = context.secrets or no_secrets
    reader = ProfileReader(context.state_dir, secrets.default_aliases(), checker.report)
    shared = AccessSources(
        providers,
        Profiles(),
        secrets,
        context.variables,
        (),
        checker.tree.origin,
        lambda _: UnresolvedSecret("it is not read while the agent does not need it"),
        by_older_rules=context.layout.name == OLDER,
    )
    found = {_RERANKER: shared}
    in_use: dict[str, tuple[AccessSources, Callable[[AccessSources], object]]] = {}
    in_use[_RERANKER] = (shared, partial(rerank_access, rerank_settings(checker)))
    for agent_id, resolved in searches.items():
        place, search = AgentPlace.of(agent_id), resolved.search
        is_remote = context.secrets is not None and _remote_providers(search, entries)
        profiles = reader.of_agent(agent_id, _agent_dir(checker, place)) if is_remote else Profiles()
        found[agent_id] = replace(shared, profiles=profiles, remote_path=_remote_path(checker, place))
        has_memory = not _has_no_memory(checker) and not unset[agent_id]
        if has_memory and (search.enabled or entries_are_enabled(checker)):
            in_use[agent_id] = (found[agent_id], partial(_use, search, entries))
    if checker.report.problems or context.secrets is None:
        return found
    return {**found, **with_secrets(in_use, secrets)}


def _use(search: MemorySearchSettings, entries: LanceDbSettings, sources: AccessSources) -> None:
    """Determine the access to every provider that an agent may use."""
    sources.usable(search)
    sources.fallback(search)
    entry_access(entries, sources)


def _remote_providers(search: MemorySearchSettings, entries: LanceDbSettings) -> set[str]:
    """Return the names of the remote providers that may need a key of the agent's profiles."""
    of_entries = (entries.embedding.provider or "") if entries.embedding and not entries.embedding.api_key else ""
    return {search.provider, search.fallback_provider, of_entries} - {"local", "none", ""}


def _remote_path(checker: Checker, place: AgentPlace) -> KeyPath:
    """Return the path of the `remote` block with the agent's key."""
    paths = [each.path_of(checker.tree, "remote", "apiKey") for each in (search_of(place), SHARED_SEARCH)]
    return next((path for path in paths if checker.tree.at(*path) is not None), paths[-1])[:-1]


def _agent_dir(checker: Checker, place: AgentPlace) -> Path | None:
    text = checker.text(place.path_of(checker.tree, "agentDir"))
    return Path(text) if text else None


def _sharing(
    context: ResolveContext, places: Mapping[str, AgentPlace], marked: Sequence[str], default: str
) -> set[str]:
    """Return the agent, if any, whose workspace is the shared one: of several entries, only a marked one."""
    if marked or not context.in_entries:
        return {default}
    return set(places) if len(places) == 1 else set()


def _workspace(checker: Checker, place: AgentPlace, context: ResolveContext, *, shares: bool, default: bool) -> Path:
    own = checker.text(place.path_of(checker.tree, "workspace"))
    shared = checker.text((*DEFAULTS, "workspace"))
    if default and context.workspace:
        return Path(context.workspace)
    if own or shares:
        return Path(own or shared or context.default_workspace)
    if shared and context.in_entries:
        return Path(shared) / place.agent_id
    return context.state_dir / f"workspace-{place.agent_id}"


def _has_no_memory(checker: Checker) -> bool:
    return bool(checker.tree.at("plugins", "slots", "memory") == "none")


def _disabled_reason(checker: Checker, place: AgentPlace, search: MemorySearchSettings, unset: str) -> str:
    if _has_no_memory(checker):
        return 'plugins.slots.memory is "none"'
    if unset:
        return f"the workspace names the variable {unset}, which is not set"
    if search.enabled:
        return ""
    path = search_of(place).path_of(checker.tree, "enabled")
    if checker.tree.at(*path) is not False:
        path = SHARED_SEARCH.path_of(checker.tree, "enabled")
    return f"{dotted(path)} is false"


def _refuse_shared_indexes(checker: Checker, agents: Mapping[str, AgentSettings]) -> None:
    owners: dict[Path, str] = {}
    for agent_id, agent in agents.items():
        owner = owners.setdefault(agent.index_path, agent_id) if agent.enabled else agent_id
        if owner != agent_id:
            path = search_of(AgentPlace.of(agent_id)).path_of(checker.tree, "store", "path")
            checker.problem(path, f'agent "{owner}" has the same index; put {{agentId}} in the path')
