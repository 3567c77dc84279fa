"""The generations of an agent's index: their creation and deletion, and what the store remembers of the current one."""

from typing import Final, NamedTuple

from memoryd_server.postgres import schema
from memoryd_server.postgres.scope import NOW_MS, OWN, AgentScope
from memoryd_server.postgres.session import Connection
from memoryd_server.text import ANALYZER_VERSION

FIRST_GENERATION: Final = 1

_AGENT = """INSERT INTO agents(agent_id, generation, fence) VALUES(%(agent)s, %(generation)s, %(fence)s)
    ON CONFLICT (agent_id) DO NOTHING"""
_CURRENT = "SELECT generation FROM agents WHERE agent_id = %s"
_CREATE = f"""INSERT INTO generations(agent_id, generation, revision, identity, analyzer_version)
    VALUES(%(agent)s, %(generation)s, greatest(%(after)s + 1, {NOW_MS}), %(identity)s, %(analyzer)s)
    ON CONFLICT (agent_id, generation) DO NOTHING"""
# The lease is that of another replica, or of this one during a lease.
_FACTS = f"""SELECT identity, mixed_chunking, analyzer_version, last_sync_ms IS NOT NULL,
        (SELECT fence FROM agents WHERE agent_id = %(agent)s),
        EXISTS(SELECT 1 FROM leases WHERE agent_id = %(agent)s),
        EXISTS(SELECT 1 FROM generations WHERE agent_id = %(agent)s AND generation <> %(generation)s)
    FROM generations WHERE {OWN}"""  # noqa: S608 -- a constant


class GenerationFacts(NamedTuple):
    """What the store remembers of an index: the columns of its current generation, and whether it is being changed.

    `has_other_generations` is whether a rebuild is under way, or has left rows.
    """

    identity: str
    mixed_chunking: bool
    analyzer_version: str
    has_completed_sync: bool
    fence: int
    has_lease: bool
    has_other_generations: bool

    @classmethod
    def load(cls, scope: AgentScope) -> "GenerationFacts":
        """Load the facts of a generation."""
        return cls(*scope.one(_FACTS))


def create_generation(connection: Connection, agent_id: str, generation: int, after: int, identity: str) -> None:
    """Create an empty generation with a revision above `after`, unless it exists."""
    values = {"agent": agent_id, "generation": generation, "after": after, "identity": identity}
    connection.execute(_CREATE, {**values, "analyzer": ANALYZER_VERSION})


def create_missing(connection: Connection, agent_id: str, fence: int, after: int, identity: str) -> None:
    """Create the agent, and its current generation, unless they exist."""
    connection.execute(_AGENT, {"agent": agent_id, "generation": FIRST_GENERATION, "fence": fence})
    row = connection.execute(_CURRENT, (agent_id,)).fetchone()
    create_generation(connection, agent_id, FIRST_GENERATION if row is None else row[0], after, identity)


def delete_other_generations(scope: AgentScope) -> None:
    """Delete the generations that readers do not see."""
    # Last, because a rebuild creates the row of a generation first.
    for table in (*schema.INDEX_TABLES, "generations"):
        scope.run(f"DELETE FROM {table} WHERE agent_id = %(agent)s AND generation <> %(generation)s")  # noqa: S608 -- constants
