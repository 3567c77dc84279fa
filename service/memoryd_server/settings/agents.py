"""The `agents` block: the configured agents by id, each resolved into `AgentSettings`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryd_server.credentials import SecretSources, UnresolvedSecret
from memoryd_server.settings.auth_profiles import ProfileReader, Profiles
from memoryd_server.settings.checking import Checker
from memoryd_server.settings.layers import Findings, SettingsTree, merge
from memoryd_server.settings.memory import CompactionSettings, MemoryBlock
from memoryd_server.settings.memory_search import MemorySearchSettings
from memoryd_server.settings.plugins import entries_are_enabled, entry_access, lancedb_settings
from memoryd_server.settings.provider_access import (
    AccessSources,
    ModelProviders,
    model_providers,
    with_secrets,
)
from memoryd_server.settings.resolved import MAIN, AgentSettings
from memoryd_server.settings.restrictions import check_providers
from memoryd_server.settings.rules import KeyPath, dotted, kind_of
from memoryd_server.settings.service import check_timezone


@dataclass(frozen=True, slots=True)
class ResolveContext:
    """What agents are resolved against.

    `workspace` is the one of a flag or a variable; empty if neither is set. `secrets` is where the secrets are read to
    which the settings refer; None if neither these nor auth profiles are read. `by_older_rules` is described at
    `AccessSources`.
    """

    state_dir: Path
    workspace: str
    environ: Mapping[str, str]
    secrets: SecretSources | None
    by_older_rules: bool


def resolve_agents(checker: Checker, context: ResolveContext) -> tuple[dict[str, AgentSettings], str]:
    """Return the agents by id, and the id of the default agent.

    The result is meaningful only if `checker` has no problem.
    """
    paths = agent_paths(checker.tree)
    default = _default_agent(checker, paths)
    memory = checker.block(MemoryBlock, checker.table(("memory",)), ("memory",))
    compaction = _compaction(checker)
    timezone = _timezone(checker)
    base = _memory_search(checker, DEFAULTS)
    providers = model_providers(checker)
    entries = lancedb_settings(checker, context.state_dir, context.environ)
    agents, searches = {}, {}
    for agent_id, path in paths.items():
        own = _memory_search(checker, path)
        searches[agent_id] = _with_index(_resolved_search(base, own, checker), agent_id, context.state_dir)
        _warn_of_ignored_sessions(checker, path if "sources" in own else DEFAULTS, searches[agent_id])
    all_sources = _access_sources(checker, context, paths, searches, providers)
    for agent_id, path in paths.items():
        search, sources = searches[agent_id], all_sources[agent_id]
        reason = _disabled_reason(checker, path, search)
        agents[agent_id] = AgentSettings(
            agent_id=agent_id,
            workspace=_workspace(checker, path, context, default=agent_id == default),
            enabled=not reason,
            memory_enabled=not _has_no_memory(checker),
            disabled_reason=reason,
            memory_search=search,
            memory=memory,
            compaction=compaction,
            user_timezone=timezone,
            index_path=Path(search.store.path),
            default=agent_id == default,
            provider_access=sources.usable(search),
            fallback_access=sources.fallback(search),
            entries_enabled=entries_are_enabled(checker),
            entries=entries,
            entry_access=entry_access(entries, context.environ),
        )
    _refuse_shared_indexes(checker, agents)
    if not checker.report.problems:
        # With a problem, the agents have the default providers.
        check_providers(checker, agents, context.environ)
    return agents, default


def _default_agent(checker: Checker, paths: Mapping[str, KeyPath]) -> str:
    marks = {agent_id: checker.tree.at(*path, "default") for agent_id, path in paths.items()}
    for agent_id, mark in marks.items():
        if mark is not None and not isinstance(mark, bool):
            checker.problem((*paths[agent_id], "default"), f"expected true or false, found {kind_of(mark)}")
    marked = [agent_id for agent_id, mark in marks.items() if mark is True]
    if len(marked) > 1:
        checker.warn(LIST, f"several agents are marked as the default; {marked[0]} is used")
    return (marked or list(paths))[0]


def _compaction(checker: Checker) -> CompactionSettings:
    path = (*DEFAULTS, "compaction")
    raw = checker.table(path)
    ours: dict[str, Any] = {
        key: raw[key] for key in ("reserveTokensFloor", "postIndexSync", "memoryFlush") if key in raw
    }
    return checker.block(CompactionSettings, ours, path)


def _timezone(checker: Checker) -> str | None:
    path = (*DEFAULTS, "userTimezone")
    name = checker.text(path)
    complaint = check_timezone(name) if name else None
    if complaint:
        checker.problem(path, complaint)
    return name or None


def _memory_search(checker: Checker, parent: KeyPath) -> dict[str, Any]:
    path = (*parent, "memorySearch")
    raw = checker.table(path)
    checker.block(MemorySearchSettings, raw, path)
    return raw


def _resolved_search(base: Mapping[str, Any], own: Mapping[str, Any], checker: Checker) -> MemorySearchSettings:
    if checker.report.problems:
        return MemorySearchSettings()
    extra = [*base.get("extraPaths", ()), *own.get("extraPaths", ())]
    return MemorySearchSettings.model_validate({**merge(base, own), "extraPaths": extra})


def _warn_of_ignored_sessions(checker: Checker, parent: KeyPath, search: MemorySearchSettings) -> None:
    """Warn if the sources at `parent` name transcripts that the agent may not index."""
    path = (*parent, "memorySearch", "sources")
    named = () if checker.report.problems else checker.tree.at(*path) or ()
    if "sessions" in named and "sessions" not in search.sources:
        indexed = ", ".join(search.sources)
        checker.warn(
            path,
            '"sessions" is ignored, because memorySearch.experimental.sessionMemory is not true; '
            f"only {indexed} is indexed",
        )


def _with_index(search: MemorySearchSettings, agent_id: str, state_dir: Path) -> MemorySearchSettings:
    template = search.store.path.strip() or str(state_dir / "memory" / "{agentId}.sqlite")
    store = search.store.model_copy(update={"path": template.replace("{agentId}", agent_id)})
    return search.model_copy(update={"store": store})


def _access_sources(
    checker: Checker,
    context: ResolveContext,
    paths: Mapping[str, KeyPath],
    searches: Mapping[str, MemorySearchSettings],
    providers: ModelProviders,
) -> dict[str, AccessSources]:
    """Return the sources of addresses and keys of each agent, with the secrets that its providers need."""
    secrets = context.secrets or SecretSources({}, {}, context.environ, context.state_dir, context.state_dir)
    reader = ProfileReader(context.state_dir, secrets.default_aliases(), checker.report)
    found = {}
    for agent_id, path in paths.items():
        search = searches[agent_id]
        is_remote = {search.provider, search.fallback_provider} - {"local", "none"}
        folder = checker.text((*path, "agentDir"))
        found[agent_id] = AccessSources(
            providers,
            reader.of_agent(agent_id, Path(folder) if folder else None)
            if is_remote and context.secrets is not None
            else Profiles(),
            secrets,
            _remote_path(checker, path),
            checker.tree.origin,
            lambda _: UnresolvedSecret("it is not read while the agent does not need it"),
            by_older_rules=context.by_older_rules,
        )
    if checker.report.problems or context.secrets is None:
        return found
    in_use = {
        agent_id: (found[agent_id], searches[agent_id]) for agent_id in found if _has_use(checker, searches[agent_id])
    }
    return {**found, **with_secrets(in_use, secrets)}


def _has_use(checker: Checker, search: MemorySearchSettings) -> bool:
    return not _has_no_memory(checker) and (search.enabled or entries_are_enabled(checker))


def _remote_path(checker: Checker, path: KeyPath) -> KeyPath:
    """Return the path of the `remote` block with the agent's key."""
    own = checker.tree.at(*path, "memorySearch", "remote", "apiKey") is not None
    return (*(path if own else DEFAULTS), "memorySearch", "remote")


def _workspace(checker: Checker, path: KeyPath, context: ResolveContext, *, default: bool) -> Path:
    own, shared = checker.text((*path, "workspace")), checker.text((*DEFAULTS, "workspace"))
    if not default:
        return Path(own or context.state_dir / f"workspace-{path[-1][1:-1]}")
    return Path(context.workspace or own or shared or context.state_dir / "workspace")


def _has_no_memory(checker: Checker) -> bool:
    return bool(checker.tree.at("plugins", "slots", "memory") == "none")


def _disabled_reason(checker: Checker, path: KeyPath, search: MemorySearchSettings) -> str:
    if _has_no_memory(checker):
        return 'plugins.slots.memory is "none"'
    if search.enabled:
        return ""
    own = checker.tree.at(*path, "memorySearch", "enabled") is False
    return f"{dotted(path if own else DEFAULTS)}.memorySearch.enabled is false"


def _refuse_shared_indexes(checker: Checker, agents: Mapping[str, AgentSettings]) -> None:
    owners: dict[Path, str] = {}
    for agent_id, agent in agents.items():
        owner = owners.setdefault(agent.index_path, agent_id) if agent.enabled else agent_id
        if owner != agent_id:
            path = (*LIST, f"[{agent_id}]", "memorySearch", "store", "path")
            checker.problem(path, f'agent "{owner}" has the same index; put {{agentId}} in the path')


DEFAULTS = ("agents", "defaults")
LIST = ("agents", "list")

_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def with_agents_by_id(layer: Mapping[str, Any], origin: str, report: Findings) -> Mapping[str, Any]:
    """Return the layer with `agents.list` as an object with keys `[<id>]`, so that layers are merged by the ids."""
    agents = layer.get("agents")
    if not isinstance(agents, Mapping) or agents.get("list") is None:
        return layer
    listed = agents["list"]
    if not isinstance(listed, list):
        report.problem(origin, LIST, f"expected an array, found {kind_of(listed)}")
        listed = []
    by_id: dict[str, Any] = {}
    for number, entry in enumerate(listed):
        where = (*LIST, f"[{number}]")
        agent_id = _id_of(entry, where, origin, report)
        if f"[{agent_id}]" in by_id:
            report.problem(origin, (*where, "id"), f'another agent has the id "{agent_id}"')
        elif agent_id:
            by_id[f"[{agent_id}]"] = {key: value for key, value in entry.items() if key != "id"}
    return {**layer, "agents": {**agents, "list": by_id}}


def agent_paths(tree: SettingsTree) -> dict[str, KeyPath]:
    """Return the path of each agent in the tree, by id and in order; only `main` if no agent is listed."""
    return {key[1:-1]: (*LIST, key) for key in tree.at(*LIST) or {}} or {MAIN: (*LIST, f"[{MAIN}]")}


def _id_of(entry: object, where: KeyPath, origin: str, report: Findings) -> str:
    if not isinstance(entry, Mapping):
        report.problem(origin, where, f"expected an object, found {kind_of(entry)}")
        return ""
    raw = entry.get("id")
    agent_id = raw.strip().lower() if isinstance(raw, str) else ""
    if not _AGENT_ID.fullmatch(agent_id):
        report.problem(origin, (*where, "id"), "expected 1 to 64 letters, digits, - and _, not starting with - or _")
        return ""
    return agent_id
