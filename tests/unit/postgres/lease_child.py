"""A replica that takes the lease of an agent, and writes when it is told to; run by the tests of leases."""

import sys

from memoryd_server.errors import MemorydError
from unit.store.contract import document, never
from unit.store.postgres_child import IDENTITY, Database, DatabaseConfig, PostgresStore


def report(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    url, agent = sys.argv[1:]
    store = PostgresStore(Database(DatabaseConfig(url, lease_seconds=1.0, renew_seconds=0.2)), agent, IDENTITY)
    store.open()
    with store.exclusive(never):
        store.writer().write([document("child.md", ("heron", ""))])
        report("holds")
        for _ in sys.stdin:
            try:
                store.writer().write([document("late.md", ("heron", ""))])
            except MemorydError as error:
                report(f"{error.reason} {error.message}")
            else:
                report("written")
    store.close()
