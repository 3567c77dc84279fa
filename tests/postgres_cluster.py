"""A primary and a synchronous standby: each commit that a client has seen is on both."""

from contextlib import contextmanager

from postgres_server import ROLE, running_server
from postgres_standby import running_standby
from waiting import wait_until


class SynchronousPair:
    """Two servers, of which the test promotes the second one when it has killed the first one.

    `url_of` names both hosts. memoryd uses the one that accepts writes.
    """

    def __init__(self, primary, standby):
        self.current = self._primary = primary
        self._standby = standby
        with primary.admin() as connection:
            # Not when the server starts: its first commits would wait for a standby that does not exist.
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standby.name}'")
            connection.execute("SELECT pg_reload_conf()")
            state = "SELECT sync_state FROM pg_stat_replication"
            wait_until(lambda: connection.execute(state).fetchall() == [("sync",)])

    def kill_primary(self):
        """Kill all processes of the primary."""
        self._primary.kill()

    def promote(self):
        """Make the standby the primary."""
        self._standby.promote()
        self.current = self._standby

    def create_database(self, name):
        """Create a database that belongs to the role of memoryd, and return its URL with both hosts."""
        self.current.create_database(name)
        return f"postgresql://{ROLE}@/{name}?host={self._primary.folder},{self._standby.folder}"

    def admin(self, database):
        """Connect to the primary as the superuser."""
        return self.current.admin(database)


@contextmanager
def synchronous_pair():
    """Start both servers, whose commits survive a kill, and stop them when the block ends."""
    with running_server(durable=True) as primary, running_standby(primary, durable=True) as standby:
        yield SynchronousPair(primary, standby)
