"""Reads the files, the variables and the flags, and makes of them what the rest of memoryd sees."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import environment as env
from .agent_list import DEFAULTS, agent_paths, with_agents_by_id
from .agents import Surroundings, resolve_agents
from .checking import Checker
from .child_environment import child_environment
from .files import OWN_FILE, REFERENCE_FILE, find_state_dir, read_layer
from .misplaced import check_places
from .misspelt import check_spelling
from .other_sources import check_files, check_variables, check_workspace
from .overrides import Overrides
from .paths import absolute, anchored
from .report import Report
from .resolved import AgentSettings, ResolvedSettings, effective
from .service import ServiceSettings
from .tree import DEFAULT, Tree
from .unimplemented import drop_unimplemented
from .words import Path as KeyPath
from .words import dotted


def load(*, environ: Mapping[str, str], home: Path, flags: Mapping[str, object] | None = None) -> ResolvedSettings:
    """The settings in force: flags over variables over memoryd.json5 over openclaw.json over the defaults.

    Reads the two files, and the agents' `auth-profiles.json` for the keys in them; creates nothing.

    Raises:
        SettingsError: lists every problem, each with its file and key.
    """
    report = Report()
    overrides = Overrides(environ, flags or {}, report)
    state_dir = find_state_dir(overrides.state_dir.text, home)
    tree = Tree()
    for layer, origin in _layers(overrides, state_dir, home, report):
        tree.overlay(layer, origin)
    return _resolve(Checker(tree, report), overrides, state_dir, home)


def state_directory(*, environ: Mapping[str, str], home: Path, flags: Mapping[str, object] | None = None) -> Path:
    """Where `load` would look for the settings' files, found out without reading them."""
    return find_state_dir(Overrides(environ, flags or {}, Report()).state_dir.text, home)


def _layers(overrides: Overrides, state_dir: Path, home: Path, report: Report) -> Iterator[tuple[dict[str, Any], str]]:
    reference = state_dir / REFERENCE_FILE
    named = overrides.config.text
    own = absolute(named, None, home) if named else state_dir / OWN_FILE
    for path, required in ((reference, False), (own, bool(named))):
        layer = with_agents_by_id(read_layer(path, report, required=required), str(path), report)
        yield anchored(layer, path.parent, home), str(path)
    for layer, origin in overrides.layers():
        yield anchored(layer, None, home), origin


def _resolve(checker: Checker, overrides: Overrides, state_dir: Path, home: Path) -> ResolvedSettings:
    for path in (("agents",), DEFAULTS, *(entries := agent_paths(checker.tree).values())):
        checker.table(path)
    check_files(overrides, state_dir, home, checker.report)
    check_variables(overrides.environ, checker.report)
    check_spelling(checker, entries)
    check_places(checker, entries)
    drop_unimplemented(checker, entries)
    workspace = overrides.workspace.text and str(absolute(overrides.workspace.text, None, home))
    # Of settings that are refused for the `memoryd` block alone, every blocker is found.
    agents, default = resolve_agents(checker, Surroundings(state_dir, workspace, overrides.environ))
    check_workspace(agents[default], overrides, state_dir, home, checker.report)
    service = checker.block(ServiceSettings, checker.table(("memoryd",)), ("memoryd",))
    checker.report.raise_if_refused()
    service = service.model_copy(update={"listen": service.listen or (_socket(overrides.environ, state_dir),)})
    return ResolvedSettings(
        state_dir,
        service,
        agents,
        default,
        tuple(checker.report.warnings),
        _origins(checker.tree, overrides, state_dir, service, agents),
        child_environment(overrides.environ),
        tuple(checker.report.blockers),
    )


def _socket(environ: Mapping[str, str], state_dir: Path) -> str:
    runtime = environ.get(env.RUNTIME_DIR, "").strip()
    folder = Path(runtime) / "memoryd" if runtime.startswith("/") else state_dir / "run"
    return f"unix:{folder / 'memoryd.sock'}"


def _origins(
    tree: Tree, overrides: Overrides, state_dir: Path, service: ServiceSettings, agents: Mapping[str, AgentSettings]
) -> dict[str, str]:
    origins = {dotted(path): _origin(tree, path) for path, _ in effective(state_dir, service, agents)}
    origins["stateDir"] = overrides.state_dir.origin
    for agent_id, agent in agents.items():
        around = ("agents", "list", f"[{agent_id}]")
        if agent.default and overrides.workspace.text:
            origins[dotted((*around, "workspace"))] = overrides.workspace.origin
        elif not agent.default:
            origins[dotted((*around, "workspace"))] = tree.written((*around, "workspace")) or DEFAULT
        slot = ("plugins", "slots", "memory") if agent.disabled_reason.startswith("plugins.") else None
        origins[dotted((*around, "enabled"))] = _origin(tree, slot or (*around, "memorySearch", "enabled"))
        origins.update({dotted((*around, *path)): access.key_from or DEFAULT for path, access in agent.accesses()})
    return origins


def _origin(tree: Tree, path: KeyPath) -> str:
    inherited = tree.written((*DEFAULTS, *path[3:])) if path[:2] == ("agents", "list") else None
    return tree.written(path) or inherited or DEFAULT
