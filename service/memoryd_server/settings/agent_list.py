"""`agents.list`: who is configured, by id."""

import re
from collections.abc import Mapping
from typing import Any

from .report import Report
from .resolved import MAIN
from .tree import Tree
from .words import Path, kind_of

DEFAULTS = ("agents", "defaults")
LIST = ("agents", "list")

_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def with_agents_by_id(layer: Mapping[str, Any], origin: str, report: Report) -> Mapping[str, Any]:
    """The layer with `agents.list` keyed by `[<id>]`, so that two files speak of the same agent by its id."""
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
            report.problem(origin, (*where, "id"), f'the id "{agent_id}" is taken by another agent')
        elif agent_id:
            by_id[f"[{agent_id}]"] = {key: value for key, value in entry.items() if key != "id"}
    return {**layer, "agents": {**agents, "list": by_id}}


def agent_paths(tree: Tree) -> dict[str, Path]:
    """The configured ids, in order, and where each agent stands in the tree; `main` alone when none is listed."""
    return {key[1:-1]: (*LIST, key) for key in tree.at(*LIST) or {}} or {MAIN: (*LIST, f"[{MAIN}]")}


def _id_of(entry: object, where: Path, origin: str, report: Report) -> str:
    if not isinstance(entry, Mapping):
        report.problem(origin, where, f"expected an object, found {kind_of(entry)}")
        return ""
    raw = entry.get("id")
    agent_id = raw.strip().lower() if isinstance(raw, str) else ""
    if not _AGENT_ID.fullmatch(agent_id):
        report.problem(origin, (*where, "id"), "expected 1 to 64 letters, digits, - and _, beginning with no - or _")
        return ""
    return agent_id
