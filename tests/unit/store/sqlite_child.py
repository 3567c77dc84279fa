"""Makes the SQLite stores of the contract; run as a program, one that writes until it is killed."""

import sys
from pathlib import Path

from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.sqlite.vector_index import VectorIndex
from memoryd_server.store.identity import BuildIdentity
from unit.store.contract import write_for_ever


def new_store(folder, **options):
    leg = VectorIndex(**{"sqlite_vec": True, "extension_path": None, "memory_budget_bytes": 1 << 30, **options})
    return SqliteStore(folder / "main.sqlite", BuildIdentity("1", 400, 80), leg)


if __name__ == "__main__":
    store = new_store(Path(sys.argv[1]))
    store.open()
    write_for_ever(store)
