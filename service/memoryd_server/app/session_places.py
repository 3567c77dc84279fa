"""Where OpenClaw keeps an agent's sessions: the place that `session.store` of its settings names, else the usual one.

`session.store` names a file of earlier versions, from which the path of the database follows. A store without
`{agentId}` belongs to one of several agents, and the settings do not say to which; it is used only for a single agent.
"""

import posixpath
from dataclasses import dataclass
from pathlib import Path

DATABASE_NAME = "openclaw-agent.sqlite"
_STORE_NAME = "sessions.json"
_AGENT = "{agentId}"


@dataclass(frozen=True, slots=True)
class SessionPlaces:
    """The folder of transcripts in files and of archives, and the database of sessions."""

    folder: Path
    database: Path


def session_places(store: str, state_dir: Path, agent_id: str, *, only_agent: bool) -> SessionPlaces:
    """Return the places of an agent's sessions. `store` is `session.store`, empty if it is not set."""
    agent = state_dir / "agents" / agent_id
    usual = SessionPlaces(agent / "sessions", agent / "agent" / DATABASE_NAME)
    if not store or not (only_agent or _AGENT in store):
        return usual
    path = Path(posixpath.normpath(Path(store.replace(_AGENT, agent_id)).expanduser()))
    # The gateway starts a relative path at its working directory, which is unknown here.
    if not path.is_absolute():
        return usual
    return SessionPlaces(path.parent, _database_of(path, agent_id))


def _database_of(store: Path, agent_id: str) -> Path:
    if store.suffix == ".sqlite":
        return store
    if store.name != _STORE_NAME:
        return store.with_suffix(".sqlite")
    if store.parts[-4:] == ("agents", agent_id, "sessions", _STORE_NAME):
        return store.parent.parent / "agent" / DATABASE_NAME
    return store.parent / DATABASE_NAME
