"""The tables of replicas, which are running daemons, and of the leases of agents that they hold.

They have no policies of row-level security: a replica looks at the rows of the others, and they contain no content of
agents, only ids.
"""

from typing import Final

REPLICA_STATEMENTS: Final = (
    # One row for each replica, which it renews. `beat` counts the renewals. The free space of a page keeps the renewed
    # row in it.
    """CREATE TABLE replicas(
        replica_id text COLLATE "C" PRIMARY KEY,
        beat bigint NOT NULL,
        expires_at timestamptz NOT NULL) WITH (fillfactor = 50)""",
    # The right to change the index of an agent. It is valid as long as the row of its replica has not expired, so that
    # one renewal is enough for all leases of a replica.
    """CREATE TABLE leases(
        agent_id text COLLATE "C" PRIMARY KEY CHECK (agent_id <> ''),
        replica_id text COLLATE "C" NOT NULL)""",
    "CREATE INDEX leases_by_replica ON leases(replica_id)",
    # The replica that allows no edits of the agent now.
    'ALTER TABLE document_states ADD COLUMN edits_paused_by text COLLATE "C"',
)

REPLICA_TABLES: Final = ("replicas", "leases")
"""The tables that `REPLICA_STATEMENTS` create."""
