"""`load`: read the files, the variables and the flags, and return the settings in force.

The steps are: find the files, overlay the layers, check the tree, and resolve the agents. Keys of OpenClaw that memoryd
knows but does not implement are dropped with a warning. Those that may restrict what is sent to a provider disable
remote embeddings while they are set.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from memoryd_server.credentials import SecretSources
from memoryd_server.settings import environment as env
from memoryd_server.settings.agents import ResolveContext, resolve_agents
from memoryd_server.settings.checking import Checker, check_spelling
from memoryd_server.settings.environment import Overrides, child_environment
from memoryd_server.settings.files import SettingsFiles, read_files
from memoryd_server.settings.includes import INCLUDE
from memoryd_server.settings.layers import Findings, SettingsTree, absolute, make_paths_absolute
from memoryd_server.settings.layouts import GLOBAL_SEARCH, Layout, find_layout, remembers_conversations
from memoryd_server.settings.locations import Locations, default_workspace, locate
from memoryd_server.settings.origins import Origins
from memoryd_server.settings.plugins import CONFIG as ENTRIES_CONFIG
from memoryd_server.settings.resolved import ResolvedSettings
from memoryd_server.settings.restrictions import check_files, check_includes, check_places, check_variables
from memoryd_server.settings.roster import DEFAULTS, ENTRIES, agent_places, has_entries, with_agents_by_id
from memoryd_server.settings.rules import KeyPath, dotted
from memoryd_server.settings.service import ServiceSettings
from memoryd_server.settings.variables import Variables


def load(
    *,
    environ: Mapping[str, str],
    home: Path,
    flags: Mapping[str, object] | None = None,
    read_secrets: bool = True,
) -> ResolvedSettings:
    """Return the settings in force. Blocks.

    Flags take precedence over variables, these over memoryd.json5, openclaw.json and the defaults, in this order. Reads
    the two files, the files that they include, and `.env` files. With `read_secrets`, also reads the API keys in
    OpenClaw's auth profiles, and the secrets to which the settings refer, each source once. Creates nothing.

    Raises:
        SettingsError: lists every problem, each with its file and key.
    """
    report = Findings()
    overrides = Overrides(environ, flags or {}, report)
    locations = locate(overrides, home)
    content = read_files(locations, Variables(environ), report)
    tree, files, host = SettingsTree(), SettingsTree(), SettingsTree()
    for layer, origin, is_host in _file_layers(content, locations.openclaw_file, report):
        rank = 0 if is_host else 1
        files.overlay(layer, origin, rank)
        tree.overlay(layer, origin, rank)
        if is_host:
            host.overlay(layer, origin)
    for layer, origin in overrides.layers():
        tree.overlay(make_paths_absolute(layer, None, locations.user_home), origin)
    # Before includes that failed are removed.
    layout = Layout(find_layout(tree, host.values, locations.state_dir), remembers_conversations(tree))
    checker = Checker(tree, report)
    secrets = _secret_sources(checker, locations, content.variables)
    # First in `tree`, because both trees share the items of arrays.
    check_includes(checker)
    check_includes(Checker(files, Findings()))
    Checker(files, report).hidden_problems(ServiceSettings, ("memoryd",), tree)
    return _resolve(
        checker, overrides, locations, content.variables, layout=layout, secrets=secrets if read_secrets else None
    )


def find_locations(*, environ: Mapping[str, str], home: Path, flags: Mapping[str, object] | None = None) -> Locations:
    """Return where `load` would look for the files, without reading them."""
    return locate(Overrides(environ, flags or {}, Findings()), home)


def _file_layers(content: SettingsFiles, host: Path, report: Findings) -> Iterator[tuple[dict[str, Any], str, bool]]:
    """Yield the layers of the files, each with its origin and whether it is of OpenClaw's own file, which is `host`."""
    names: dict[Path, dict[str, str]] = {}
    for layer in content.layers:
        by_id = with_agents_by_id(layer.values, layer.origin, report, names.setdefault(layer.file, {}))
        yield make_paths_absolute(by_id, layer.file.parent, layer.home), layer.origin, layer.file == host


_EXEC = ("memoryd", "secrets", "exec")


def _secret_sources(checker: Checker, locations: Locations, variables: Variables) -> SecretSources:
    """Return where secrets are read. The permission to run commands counts in memoryd's own file alone."""
    own = locations.own_file
    is_own = own != locations.openclaw_file and checker.tree.exact_origin(_EXEC) == str(own)
    if not is_own and checker.tree.at(*_EXEC) is not None:
        checker.warn(_EXEC, "this key counts only in memoryd's own settings file; it is ignored here")
        checker.tree.remove(_EXEC)
    paths = (("secrets",), ("secrets", "providers"), ("secrets", "defaults"))
    blocks = [checker.tree.at(*path) for path in paths]
    # A file that is not included may restrict which secrets are used.
    wrong = [not isinstance(block, dict | None) or INCLUDE in (block or {}) for block in blocks]
    return SecretSources(
        {} if any(wrong) else blocks[1] or {},
        {} if any(wrong) else blocks[2] or {},
        variables.values,
        locations.home,
        locations.state_dir,
        may_run_commands=checker.tree.at(*_EXEC) is True,
        problem=f"{dotted(paths[wrong.index(True)])} cannot be read" if any(wrong) else "",
    )


def _resolve(
    checker: Checker,
    overrides: Overrides,
    locations: Locations,
    variables: Variables,
    *,
    layout: Layout,
    secrets: SecretSources | None,
) -> ResolvedSettings:
    state_dir = locations.state_dir
    entries = [path for place in agent_places(checker.tree).values() for path in place.paths(checker.tree)]
    for path in (("agents",), DEFAULTS, ENTRIES, *entries):
        checker.table(path)
    check_files(locations, checker.report)
    check_variables(overrides.environ, checker.report)
    check_spelling(checker, entries)
    check_places(checker, entries)
    drop_unimplemented(checker, entries)
    workspace = overrides.workspace.text and str(absolute(overrides.workspace.text, None, locations.user_home))
    default_folder = default_workspace(locations, variables, checker.report)
    # Before the `memoryd` block, so that every blocker is found even if that block is refused.
    in_entries = has_entries(checker.tree)
    context = ResolveContext(state_dir, workspace, Path(default_folder.text), variables, layout, in_entries, secrets)
    agents, default, rerank_access = resolve_agents(checker, context)
    if workspace and not default:
        checker.report.warn(overrides.workspace.origin, (), "it is ignored, because there is no default agent")
    service = checker.block(ServiceSettings, checker.table(("memoryd",)), ("memoryd",))
    checker.report.raise_if_refused()
    service = service.model_copy(update={"listen": service.listen or (_socket(overrides.environ, state_dir),)})
    origins = Origins(checker.tree, overrides.state_dir, overrides.workspace, default_folder, in_entries, variables)
    return ResolvedSettings(
        state_dir,
        service,
        agents,
        default,
        tuple(checker.report.warnings),
        origins.table(state_dir, service, agents, rerank_access),
        child_environment(overrides.environ),
        tuple(checker.report.blockers),
        env.runtime_folder(overrides.environ),
        layout.name,
        _session_store(checker.tree),
        rerank_access,
    )


def _session_store(tree: SettingsTree) -> str:
    """Return `session.store` of OpenClaw's settings; empty if it is not set or not a path."""
    session = tree.at("session")
    store = session.get("store") if isinstance(session, dict) else None
    return store if isinstance(store, str) and "\0" not in store and "${" not in store else ""


def _socket(environ: Mapping[str, str], state_dir: Path) -> str:
    folder = env.runtime_folder(environ) or state_dir / "run"
    return f"unix:{folder / 'memoryd.sock'}"


_NO_CHANGE = "memoryd's defaults are used"

MEMORY_SEARCH: Mapping[KeyPath, str] = {
    ("multimodal",): "images and audio are not indexed",
    ("local", "contextSize"): _NO_CHANGE,
    ("store", "fts"): "memoryd's own analyzer splits text into words, in all scripts",
    ("sync", "embeddingBatchTimeoutSeconds"): _NO_CHANGE,
    ("qmd",): "these folders are not indexed; add them to extraPaths",
}
"""The keys of memory search that memoryd does not implement, with the consequence."""

MEMORY: Mapping[KeyPath, str] = {
    ("qmd", "mcporter"): "qmd is run as a command",
    ("qmd", "searchTool"): _NO_CHANGE,
    ("qmd", "rerank"): _NO_CHANGE,
    ("qmd", "update", "startup"): "memory.qmd.update.onBoot decides about updates at the start",
    ("qmd", "update", "startupDelayMs"): _NO_CHANGE,
}

COMPACTION: Mapping[KeyPath, str] = {("memoryFlush", "model"): "the agent's model writes the notes"}

LANCEDB: Mapping[KeyPath, str] = {
    ("recallMaxChars",): "recalled entries are returned whole",
    ("customTriggers",): "SuggestCapture uses only its own phrases",
}

AGENTS: Mapping[KeyPath, str] = {
    ("defaults", "contextLimits", "memoryGetDefaultLines"): "a MemoryGet without a number returns 120 lines",
}


def drop_unimplemented(checker: Checker, agent_paths: Iterable[KeyPath]) -> None:
    """Remove the keys that are not implemented, with a warning for each. `agent_paths` are the agents' paths."""
    _drop(checker, ("agents",), AGENTS)
    _drop(checker, ("memory",), MEMORY)
    _drop(checker, (*DEFAULTS, "compaction"), COMPACTION)
    _drop(checker, ENTRIES_CONFIG, LANCEDB)
    older = [(*parent, "memorySearch") for parent in (DEFAULTS, *agent_paths)]
    for search in (GLOBAL_SEARCH, *older, *((*path, *GLOBAL_SEARCH) for path in agent_paths if path[:2] == ENTRIES)):
        _drop(checker, search, MEMORY_SEARCH)


def _drop(checker: Checker, parent: KeyPath, known: Mapping[KeyPath, str]) -> None:
    for key, consequence in known.items():
        path = (*parent, *key)
        if checker.tree.at(*path) is not None:
            _warn(checker, path, consequence)
            checker.tree.remove(path)


def _warn(checker: Checker, path: KeyPath, consequence: str) -> None:
    checker.warn(path, f"a key of OpenClaw; memoryd does not implement it and ignores it: {consequence}")
