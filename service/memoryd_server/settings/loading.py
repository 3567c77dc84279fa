"""`load`: read the files, the variables and the flags, and return the settings in force.

The steps are: find the files, overlay the layers, check the tree, and resolve the agents. Keys of OpenClaw that memoryd
knows but does not implement are dropped with a warning. Those that may restrict what is sent to a provider disable
remote embeddings while they are set.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from memoryd_server.settings import environment as env
from memoryd_server.settings.agents import (
    DEFAULTS,
    LIST,
    ResolveContext,
    agent_paths,
    resolve_agents,
    with_agents_by_id,
)
from memoryd_server.settings.checking import Checker, check_spelling
from memoryd_server.settings.environment import Overrides, child_environment
from memoryd_server.settings.files import SettingsFiles, read_files
from memoryd_server.settings.layers import DEFAULT, Findings, SettingsTree, absolute, make_paths_absolute
from memoryd_server.settings.locations import Locations, default_workspace, locate
from memoryd_server.settings.resolved import AgentSettings, ResolvedSettings, effective
from memoryd_server.settings.restrictions import check_files, check_includes, check_places, check_variables
from memoryd_server.settings.rules import KeyPath, dotted
from memoryd_server.settings.service import ServiceSettings
from memoryd_server.settings.variables import Variables


def load(*, environ: Mapping[str, str], home: Path, flags: Mapping[str, object] | None = None) -> ResolvedSettings:
    """Return the settings in force.

    Flags take precedence over variables, these over memoryd.json5, openclaw.json and the defaults, in this order. Reads
    the two files, the files that they include, `.env` files, and the agents' `auth-profiles.json` for API keys. Creates
    nothing.

    Raises:
        SettingsError: lists every problem, each with its file and key.
    """
    report = Findings()
    overrides = Overrides(environ, flags or {}, report)
    locations = locate(overrides, home)
    content = read_files(locations, Variables(environ), report)
    tree, files = SettingsTree(), SettingsTree()
    for layer, origin in _file_layers(content, report):
        files.overlay(layer, origin)
        tree.overlay(layer, origin)
    for layer, origin in overrides.layers():
        tree.overlay(make_paths_absolute(layer, None, locations.user_home), origin)
    # First in `tree`, because both trees share the items of arrays.
    check_includes(Checker(tree, report))
    check_includes(Checker(files, Findings()))
    Checker(files, report).hidden_problems(ServiceSettings, ("memoryd",), tree)
    return _resolve(Checker(tree, report), overrides, locations, content.variables)


def state_directory(*, environ: Mapping[str, str], home: Path, flags: Mapping[str, object] | None = None) -> Path:
    """Return the directory in which `load` would look for the files, without reading them."""
    return locate(Overrides(environ, flags or {}, Findings()), home).state_dir


def _file_layers(content: SettingsFiles, report: Findings) -> Iterator[tuple[dict[str, Any], str]]:
    for layer in content.layers:
        by_id = with_agents_by_id(layer.values, layer.origin, report)
        yield make_paths_absolute(by_id, layer.base, layer.home), layer.origin


def _resolve(checker: Checker, overrides: Overrides, locations: Locations, variables: Variables) -> ResolvedSettings:
    state_dir = locations.state_dir
    for path in (("agents",), DEFAULTS, *(entries := agent_paths(checker.tree).values())):
        checker.table(path)
    check_files(locations, checker.report)
    check_variables(overrides.environ, checker.report)
    check_spelling(checker, entries)
    check_places(checker, entries)
    drop_unimplemented(checker, entries)
    workspace = overrides.workspace.text and str(absolute(overrides.workspace.text, None, locations.user_home))
    default_folder = default_workspace(locations, variables, checker.report)
    # Before the `memoryd` block, so that every blocker is found even if that block is refused.
    context = ResolveContext(state_dir, workspace, Path(default_folder.text), variables.values)
    agents, default = resolve_agents(checker, context)
    service = checker.block(ServiceSettings, checker.table(("memoryd",)), ("memoryd",))
    checker.report.raise_if_refused()
    service = service.model_copy(update={"listen": service.listen or (_socket(overrides.environ, state_dir),)})
    origins = _origins(checker.tree, overrides, state_dir, service, agents)
    default_agent = dotted((*LIST, f"[{default}]", "workspace"))
    if origins[default_agent] == DEFAULT:
        origins[default_agent] = default_folder.origin
    return ResolvedSettings(
        state_dir,
        service,
        agents,
        default,
        tuple(checker.report.warnings),
        {key: variables.origins.get(origin.removeprefix("env "), origin) for key, origin in origins.items()},
        child_environment(overrides.environ),
        tuple(checker.report.blockers),
        env.runtime_folder(overrides.environ),
        _session_store(checker.tree),
    )


def _session_store(tree: SettingsTree) -> str:
    """Return `session.store` of OpenClaw's settings; empty if it is not set or not a path."""
    session = tree.at("session")
    store = session.get("store") if isinstance(session, dict) else None
    return store if isinstance(store, str) and "\0" not in store and "${" not in store else ""


def _socket(environ: Mapping[str, str], state_dir: Path) -> str:
    folder = env.runtime_folder(environ) or state_dir / "run"
    return f"unix:{folder / 'memoryd.sock'}"


def _origins(
    tree: SettingsTree,
    overrides: Overrides,
    state_dir: Path,
    service: ServiceSettings,
    agents: Mapping[str, AgentSettings],
) -> dict[str, str]:
    origins = {dotted(path): _origin(tree, path) for path, _ in effective(state_dir, service, agents)}
    origins["stateDir"] = overrides.state_dir.origin
    for agent_id, agent in agents.items():
        parent = ("agents", "list", f"[{agent_id}]")
        if agent.default and overrides.workspace.text:
            origins[dotted((*parent, "workspace"))] = overrides.workspace.origin
        elif not agent.default:
            origins[dotted((*parent, "workspace"))] = tree.exact_origin((*parent, "workspace")) or DEFAULT
        slot = ("plugins", "slots", "memory") if not agent.memory_enabled else None
        origins[dotted((*parent, "enabled"))] = _origin(tree, slot or (*parent, "memorySearch", "enabled"))
        origins.update({dotted((*parent, *path)): access.key_from or DEFAULT for path, access in agent.accesses()})
    return origins


def _origin(tree: SettingsTree, path: KeyPath) -> str:
    inherited = tree.exact_origin((*DEFAULTS, *path[3:])) if path[:2] == ("agents", "list") else None
    return tree.exact_origin(path) or inherited or DEFAULT


_NEWER = "a key of a newer version of OpenClaw"
_OURS = "a key of OpenClaw"

MEMORY_SEARCH: Mapping[KeyPath, str] = {
    ("multimodal",): _OURS,
    ("local", "contextSize"): _NEWER,
    ("store", "fts"): _NEWER,
    ("sync", "embeddingBatchTimeoutSeconds"): _NEWER,
    ("qmd",): _NEWER,
}

MEMORY: Mapping[KeyPath, str] = {
    ("search",): _NEWER,
    ("qmd", "mcporter"): _OURS,
    ("qmd", "searchTool"): _NEWER,
    ("qmd", "rerank"): _NEWER,
    ("qmd", "update", "startup"): _NEWER,
    ("qmd", "update", "startupDelayMs"): _NEWER,
}

COMPACTION: Mapping[KeyPath, str] = {("memoryFlush", "model"): _NEWER}

AGENTS: Mapping[KeyPath, str] = {
    ("entries",): _NEWER,
    ("defaults", "contextLimits", "memoryGetDefaultLines"): _NEWER,
    ("defaults", "contextLimits", "memoryGetMaxChars"): _NEWER,
}

BLOCKING: frozenset[KeyPath] = frozenset({("memory", "search"), ("agents", "entries")})
"""The keys that contain a provider, a fallback or `enabled` in the layout of newer versions of OpenClaw."""


def drop_unimplemented(checker: Checker, agent_paths: Iterable[KeyPath]) -> None:
    """Remove the keys that are not implemented, with a warning for each. `agent_paths` are the agents' paths."""
    _drop(checker, ("agents",), AGENTS)
    _drop(checker, ("memory",), MEMORY)
    _drop(checker, ("agents", "defaults", "compaction"), COMPACTION)
    for parent in (("agents", "defaults"), *agent_paths):
        _drop(checker, (*parent, "memorySearch"), MEMORY_SEARCH)
        _drop_secret_reference(checker, (*parent, "memorySearch", "remote", "apiKey"))


def _drop(checker: Checker, parent: KeyPath, known: Mapping[KeyPath, str]) -> None:
    for key, what in known.items():
        path = (*parent, *key)
        if checker.tree.at(*path) is None:
            continue
        if path in BLOCKING:
            checker.block_remote(path, f"{what}; memoryd does not read it")
        else:
            _warn(checker, path, what)
        checker.tree.remove(path)


def _drop_secret_reference(checker: Checker, path: KeyPath) -> None:
    if isinstance(checker.tree.at(*path), dict):
        # Without it, another key would be used in its place.
        checker.block_remote(path, "a reference to a secret stored elsewhere; memoryd does not read it")
        checker.tree.remove(path)


def _warn(checker: Checker, path: KeyPath, what: str) -> None:
    checker.warn(path, f"{what}; memoryd does not implement it and ignores it")
