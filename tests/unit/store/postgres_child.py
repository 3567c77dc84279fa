"""Makes the PostgreSQL stores of the contract; run as a program, one that writes until it is killed."""

import sys
from pathlib import Path

from memoryd_server.postgres.config import DatabaseConfig
from memoryd_server.postgres.connection import Database
from memoryd_server.postgres.embedding_cache import PostgresEmbeddingCache
from memoryd_server.postgres.history import PostgresWriteHistory
from memoryd_server.postgres.history_rows import RECORD_BYTES
from memoryd_server.postgres.store import PostgresStore
from memoryd_server.store.identity import BuildIdentity
from unit.store.contract import write_for_ever

__all__ = [
    "IDENTITY",
    "RECORD_BYTES",
    "URL_FILE",
    "Database",
    "DatabaseConfig",
    "PostgresEmbeddingCache",
    "PostgresStore",
    "PostgresWriteHistory",
    "agent_of",
    "new_store",
]

URL_FILE = "url"
IDENTITY = BuildIdentity("1", 400, 80)


def agent_of(folder):
    """An agent of the folder alone."""
    return f"agent of {folder}"


def new_store(folder, database):
    """A store that holds the lease of its agent while it is open, so that the contract can write at any time."""
    return PostgresStore(database, agent_of(folder), IDENTITY, keeps_lease=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    store = new_store(folder, Database(DatabaseConfig((folder / URL_FILE).read_text())))
    store.open()
    write_for_ever(store)
