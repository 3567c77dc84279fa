"""Read OpenClaw's file and memoryd's own, with included files and variables, into layers of the settings.

The steps are OpenClaw's: `.env` files, the settings file, `$include`, `env.vars`, and then `${NAME}` in every string.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryd_server.settings.environment import openclaw_text
from memoryd_server.settings.includes import (
    INCLUDE,
    OTHER_SECTIONS,
    Leaf,
    Table,
    leaves,
    origins,
    plain,
    resolve_includes,
)
from memoryd_server.settings.layers import OPENCLAW_FILE, Findings, exists, is_whole, read_layer
from memoryd_server.settings.locations import CONFIG_PATH, Locations, check_moved, include_roots
from memoryd_server.settings.rules import dotted, kind_of
from memoryd_server.settings.substitution import DROPPED, Substitution, names_variable
from memoryd_server.settings.variables import Variables, is_variable_name

_ENV = "env"
_AGENT_LIST = ("agents", "list")
_LOAD_SHELL = "OPENCLAW_LOAD_SHELL_ENV"
_YES = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class FileLayer:
    """The keys of one file, which is `file` or included in it.

    Relative paths start at the folder of `file`, and `home` is `~` in paths.
    """

    values: dict[str, Any]
    origin: str
    file: Path
    home: Path


@dataclass(frozen=True, slots=True)
class SettingsFiles:
    """The layers of the files, each over those before it, and the variables that settings and providers see."""

    layers: tuple[FileLayer, ...]
    variables: Variables


def read_files(locations: Locations, process: Variables, report: Findings) -> SettingsFiles:
    """Return the content of the settings files and of the `.env` files.

    The layers of one settings file, one for each file that it includes, have no key in common, except agents of
    different ids in `agents.list`. Their strings have no `${NAME}` of a variable that is set, except in keys, headers
    and addresses of providers, where it is left for the reader.
    """
    variables = process.with_dotenv(locations.dotenv_files, report)
    roots = include_roots(variables.values, locations.home)
    tables = []
    files = {locations.openclaw_file: (False, locations.home)}
    files[locations.own_file] = (locations.own_is_named, locations.user_home)
    expected = locations.state_dir / OPENCLAW_FILE
    if locations.config_path and locations.openclaw_file != expected and not exists(locations.openclaw_file):
        report.block_remote(f"env {CONFIG_PATH}", (), f"the file {locations.openclaw_file} does not exist")
    for file, (required, _) in files.items():
        tables.append(resolve_includes(read_layer(file, report, required=required), file, roots, _AGENT_LIST))
    for table in reversed(tables):
        variables = variables.with_settings(_assignments(table, report))
    check_moved(locations, variables, report)
    _check_shell(tables, variables, report)
    layers = tuple(
        FileLayer(values, origin, file, home)
        for table, (file, (_, home)) in zip(tables, files.items(), strict=True)
        for origin, values in _layers(table, variables, report)
    )
    return SettingsFiles(layers, variables)


def _assignments(table: Table, report: Findings) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and origin of each variable in `env.vars`, then of each in its older place, `env`."""
    for path in ((_ENV, "vars"), (_ENV,)):
        block = table.at(*path)
        if isinstance(block, Leaf) and block.value is not None:
            report.warn(block.origin, path, f"expected an object, found {kind_of(block.value)}; it is ignored")
        for name, node in block.values.items() if isinstance(block, Table) else ():
            if path == (_ENV,) and name in {"vars", "shellEnv", INCLUDE}:
                continue
            key, value = (*path, name), plain(node)
            origin = next(iter(origins(node)))
            if not isinstance(value, str) or not is_variable_name(name):
                report.warn(origin, key, "not a variable with a string; it is ignored")
            elif names_variable(value):
                report.warn(origin, key, "the value names another variable; it is ignored, as by OpenClaw")
            elif value.strip():
                yield name, value, f"{origin}: {dotted(key)}"


def _check_shell(tables: list[Table], variables: Variables, report: Findings) -> None:
    path = (_ENV, "shellEnv", "enabled")
    message = "memoryd runs no shell: a key that is only in the profile of the login shell is not found"
    for table in tables:
        node = table.at(*path)
        if isinstance(node, Leaf) and node.value is True:
            report.warn(node.origin, path, message)
    if openclaw_text(variables.values, _LOAD_SHELL).lower() in _YES:
        report.warn(variables.origin(_LOAD_SHELL), (), message)


def _layers(table: Table, variables: Variables, report: Findings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an origin and the keys with this origin, in the order of the first key of each origin."""
    found: dict[str, dict[str, Any]] = {}
    substitution = Substitution(variables, report)
    for path, value, origin in leaves(table, is_whole, _AGENT_LIST):
        filled = value
        used: list[str] = []
        if path[0] not in OTHER_SECTIONS and path[0] != _ENV:
            filled = substitution.fill(value, path, origin, used)
            if filled is DROPPED:
                continue
        if used and path != _AGENT_LIST:
            named = (f"${{{name}}} from {variables.origin(name)}" for name in dict.fromkeys(used))
            origin = ", ".join((origin, *named))  # noqa: PLW2901 -- the origin of the key and of its variables
        layer = found.setdefault(origin, {})
        for key in path[:-1]:
            layer = layer.setdefault(key, {})
        layer[path[-1]] = filled
    yield from found.items()
