"""Which agents are configured: their ids, the places of their keys in both layouts, and the default agent.

The current layout of OpenClaw has `agents.entries`, an object by id. The older layout has `agents.list`, an array,
which is read as an object with keys `[<id>]`, so that layers are merged agent by agent.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memoryd_server.settings.checking import Checker
from memoryd_server.settings.includes import INCLUDE
from memoryd_server.settings.layers import Findings, SettingsTree
from memoryd_server.settings.resolved import MAIN
from memoryd_server.settings.rules import KeyPath, kind_of

DEFAULTS = ("agents", "defaults")
LIST = ("agents", "list")
ENTRIES = ("agents", "entries")

_SYSTEM_AGENT = (*DEFAULTS, "systemAgent", "agentId")
_AGENT_ID = re.compile(r"[a-z0-9_][a-z0-9_-]{0,63}")
_INVALID = re.compile(r"[^a-z0-9_-]+")
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """The places of one agent's keys: `entry` in the current layout, `listed` in the older one."""

    agent_id: str
    entry: KeyPath
    listed: KeyPath

    @staticmethod
    def of(agent_id: str) -> "AgentPlace":
        """Return the places of the agent with this id."""
        return AgentPlace(agent_id, (*ENTRIES, agent_id), (*LIST, f"[{agent_id}]"))

    def paths(self, tree: SettingsTree) -> tuple[KeyPath, ...]:
        """Return the places that are set, the current one first; the place in the older layout if none is."""
        return tuple(path for path in (self.entry, self.listed) if tree.at(*path) is not None) or (self.listed,)

    def path_of(self, tree: SettingsTree, *key: str) -> KeyPath:
        """Return the path of an agent's key: the one of the later file, and of the current layout within one file."""
        return later(tree, (*self.listed, *key), (*self.entry, *key))


def later(tree: SettingsTree, older: KeyPath, current: KeyPath) -> KeyPath:
    """Return the path of the two that is in force: that of the later file; within one file, that of the current layout.

    The older path if neither is set.
    """
    return current if tree.at(*current) is not None and tree.rank(current) >= tree.rank(older) else older


def agent_places(tree: SettingsTree) -> dict[str, AgentPlace]:
    """Return the places of each agent in the tree, by id and in order; only `main` if there is no agent."""
    listed = [key[1:-1] for key in _keys(tree, LIST)]
    return {agent_id: AgentPlace.of(agent_id) for agent_id in (*_keys(tree, ENTRIES), *listed)} or {
        MAIN: AgentPlace.of(MAIN)
    }


def has_entries(tree: SettingsTree) -> bool:
    """Return whether agents are configured in the current layout, so that its rules of workspaces apply."""
    return bool(_keys(tree, ENTRIES))


def _keys(tree: SettingsTree, path: KeyPath) -> tuple[str, ...]:
    """Return the keys of the object at `path` that name agents."""
    value = tree.at(*path)
    return tuple(key for key in value if key != INCLUDE) if isinstance(value, dict) else ()


def marked_agents(checker: Checker, places: Mapping[str, AgentPlace]) -> list[str]:
    """Return the agents with `default: true`, in order."""
    marked = []
    for agent_id, place in places.items():
        path = place.path_of(checker.tree, "default")
        mark = checker.tree.at(*path)
        if mark is not None and not isinstance(mark, bool):
            checker.problem(path, f"expected true or false, found {kind_of(mark)}")
        elif mark:
            marked.append(agent_id)
    if len(marked) > 1:
        path = places[marked[0]].path_of(checker.tree, "default")[:2]
        checker.warn(path, f"several agents are marked as the default; {marked[0]} is used")
    return marked


def default_agent(checker: Checker, places: Mapping[str, AgentPlace], marked: list[str]) -> str:
    """Return the id of the default agent; empty if several entries of the current layout name none.

    With `agents.entries`, `agents.defaults.systemAgent.agentId` names it if no agent is marked: OpenClaw's doctor
    writes it there when it removes the mark.
    """
    if marked:
        return marked[0]
    if not has_entries(checker.tree) or len(places) == 1:
        return next(iter(places))
    named = checker.text(_SYSTEM_AGENT)
    agent_id = _normalized(named)
    if named and agent_id not in places:
        checker.warn(_SYSTEM_AGENT, "no agent with this id is configured, so there is no default agent")
    return agent_id if agent_id in places else ""


def with_agents_by_id(
    layer: Mapping[str, Any], origin: str, report: Findings, names: dict[str, str]
) -> Mapping[str, Any]:
    """Return the layer with the agents of both layouts in objects by their normalized ids.

    `names` has the name of each id in the earlier layers of the same file; those of this layer's entries are added.
    """
    agents = layer.get("agents")
    if not isinstance(agents, Mapping):
        return layer
    by_id = dict(agents)
    if agents.get("list") is not None:
        by_id["list"] = _listed(agents["list"], origin, report)
    if isinstance(agents.get("entries"), Mapping):
        by_id["entries"] = dict(_each_entry(agents["entries"], origin, report, names))
    return {**layer, "agents": by_id}


def _listed(listed: object, origin: str, report: Findings) -> dict[str, Any]:
    if not isinstance(listed, list):
        report.problem(origin, LIST, f"expected an array, found {kind_of(listed)}")
        return {}
    by_id: dict[str, Any] = {}
    for number, entry in enumerate(listed):
        where = (*LIST, f"[{number}]")
        if not isinstance(entry, Mapping):
            report.problem(origin, where, f"expected an object, found {kind_of(entry)}")
            continue
        agent_id = _id_of(entry.get("id"), (*where, "id"), origin, report)
        if f"[{agent_id}]" in by_id:
            report.problem(origin, (*where, "id"), f'another agent has the id "{agent_id}"')
        elif agent_id:
            by_id[f"[{agent_id}]"] = {key: value for key, value in entry.items() if key != "id"}
    return by_id


def _each_entry(
    entries: Mapping[str, Any], origin: str, report: Findings, names: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    for name, entry in entries.items():
        where = (*ENTRIES, name)
        if name == INCLUDE:
            yield name, entry
            continue
        known = names.get(_normalized(name)) == name
        agent_id = _normalized(name) if known else _id_of(name, where, origin, report)
        if agent_id and names.setdefault(agent_id, name) != name:
            report.problem(origin, where, f'another agent has the id "{agent_id}"', agent_id)
        elif agent_id and (entry is None or isinstance(entry, Mapping)):
            yield agent_id, entry
        elif agent_id:
            report.problem(origin, where, f"expected an object, found {kind_of(entry)}", agent_id)


def _id_of(raw: object, where: KeyPath, origin: str, report: Findings) -> str:
    """Return the normalized id; empty, with a problem, if no id can be made of `raw`."""
    agent_id = _normalized(raw) if isinstance(raw, str) else ""
    if not agent_id:
        message = "expected 1 to 64 letters, digits, - and _, not starting with -"
        report.problem(origin, where, message)
    elif isinstance(raw, str) and agent_id != raw.strip().lower():
        report.warn(origin, where, f'the agent has the id "{agent_id}", because an id has only a-z, 0-9, - and _')
    return agent_id


def _normalized(raw: str) -> str:
    text = raw.strip().lower()
    if _AGENT_ID.fullmatch(text):
        return text
    # OpenClaw makes the same id of a name.
    return _INVALID.sub("-", text).strip("-")[:_LONGEST]
