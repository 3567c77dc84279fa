"""Makes the PostgreSQL stores of the contract; run as a program, one that writes until it is killed."""

import sys
from pathlib import Path

from memoryd_server.postgres.connection import Database, DatabaseConfig
from memoryd_server.postgres.store import PostgresStore
from memoryd_server.store.identity import BuildIdentity
from unit.store.contract import write_for_ever

URL_FILE = "url"


def new_store(folder, database):
    """A store of an agent that is named after the folder."""
    return PostgresStore(database, f"agent of {folder.name}", BuildIdentity("1", 400, 80))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    store = new_store(folder, Database(DatabaseConfig((folder / URL_FILE).read_text())))
    store.open()
    write_for_ever(store)
