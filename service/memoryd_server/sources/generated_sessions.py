"""The sessions that the gateway generates, instead of conversations, by their keys in the gateway's list of sessions.

OpenClaw's `sessions.json` maps the key of each session to an entry with the id of its transcript; current versions have
the same entries in a database. Left out are the runs of scheduled jobs (`agent:<agent>:cron:<job>:run:<run>`) with the
sessions that they start, dream narratives, and isolated heartbeats.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryd_server.errors import FileNotFound, MemorydError
from memoryd_server.foreign_text import parse_json
from memoryd_server.sources.files import read_file
from memoryd_server.sources.roots import Location

SESSION_STORE = "sessions.json"

_MOST_BYTES = 32 << 20
_CRON_RUN = re.compile(r"agent:[^:]+:cron:[^:]+:run:[^:]")
_DREAM = "dreaming-narrative-"
_HEARTBEAT_BASE = "heartbeatIsolatedBaseSessionKey"
_PARENTS = ("spawnedBy", "parentSessionKey")
# A file without any of these has no session to leave out, and is not parsed.
_MARKS = (b":cron:", _DREAM.encode(), _HEARTBEAT_BASE.encode())


@dataclass(frozen=True, slots=True)
class SessionLinks:
    """The keys of the sessions that started a session, and whether it is an isolated heartbeat."""

    parents: tuple[str, ...] = ()
    is_heartbeat: bool = False


def session_links(parents: Iterable[Any], heartbeat_base: Any) -> SessionLinks:
    """Return the links in foreign values, of which only strings that are not blank count."""
    keys = (parent.strip() for parent in parents if isinstance(parent, str))
    return SessionLinks(tuple(filter(None, keys)), isinstance(heartbeat_base, str) and bool(heartbeat_base.strip()))


def generated_sessions(sessions: Mapping[str, SessionLinks]) -> frozenset[str]:
    """Return the keys of the sessions, by key, that are no conversations. Takes linear time."""
    found = {key for key, links in sessions.items() if is_generated_key(key) or _is_generated(links)}
    children: dict[str, list[str]] = {}
    for key, links in sessions.items():
        for parent in links.parents:
            children.setdefault(parent, []).append(key)
    waiting = [key for key in {*sessions, *children} if is_cron_run(key)]
    while waiting:
        for key in children.pop(waiting.pop(), ()):
            found.add(key)
            waiting.append(key)
    return frozenset(found)


def is_generated_key(key: str) -> bool:
    """Return whether a session key shows that the gateway itself made the session: a scheduled run, or a narrative."""
    return is_cron_run(key) or _is_dream(key)


def is_cron_run(key: str) -> bool:
    """Return whether a session key is that of one run of a scheduled job."""
    return _CRON_RUN.match(key.strip().lower()) is not None


def _is_generated(links: SessionLinks) -> bool:
    return links.is_heartbeat or any(_is_dream(parent) for parent in links.parents)


def _is_dream(key: str) -> bool:
    return key.strip().split(":", 2)[-1].startswith(_DREAM)


def entry_links(entry: Any) -> SessionLinks:
    """Return the links of an entry of `sessions.json`, which may be any value."""
    if not isinstance(entry, dict):
        return SessionLinks()
    return session_links((entry.get(name) for name in _PARENTS), entry.get(_HEARTBEAT_BASE))


def read_generated_sessions(folder: Path) -> tuple[frozenset[str], str]:
    """Return the ids of the transcripts in `folder` to leave out, and why the list of sessions cannot be read.

    Without a list, no transcript is left out, and the reason is empty.
    """
    try:
        data, _ = read_file(Location(SESSION_STORE, str(folder), (SESSION_STORE,)), _MOST_BYTES)
        entries = parse_json(data) if any(mark in data for mark in _MARKS) else {}
    except FileNotFound:
        return frozenset(), ""
    except (MemorydError, OSError, ValueError) as error:
        reason = error.message if isinstance(error, MemorydError) else str(error)
        return frozenset(), f"{folder / SESSION_STORE} cannot be read: {reason}"
    if not isinstance(entries, dict):
        return frozenset(), f"{folder / SESSION_STORE} cannot be read: it is not an object"
    generated = generated_sessions({key: entry_links(entry) for key, entry in entries.items()})
    return frozenset(name for key in generated for name in _transcripts(entries.get(key))), ""


def _transcripts(entry: Any) -> list[str]:
    """Return the session ids of an entry's transcript: from its id and from the name of its file."""
    if not isinstance(entry, dict):
        return []
    session, file = entry.get("sessionId"), entry.get("sessionFile")
    found = [session.strip()] if isinstance(session, str) else []
    if isinstance(file, str) and file.strip().endswith(".jsonl"):
        found.append(Path(file.strip()).name.removesuffix(".jsonl"))
    return found
