"""A streaming standby of a PostgreSQL server of the tests, made by `pg_basebackup`."""

import shutil

from postgres_server import PostgresServer, running_server
from waiting import wait_until


class StandbyServer(PostgresServer):
    """A standby that follows `primary`, under `name`, which `synchronous_standby_names` of the primary may contain.

    A replication slot of that name keeps what a stopped standby has not received. `url` is that of the same database.
    """

    def __init__(self, folder, *, primary, name="standby", **options):
        self.primary = primary
        self.name = name
        super().__init__(folder, **options)

    def _create(self):
        self._own_folders()
        with self.primary.admin() as connection:
            query = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s"
            if not connection.execute(query, (self.name,)).fetchone():
                connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", (self.name,))
        source = f"host={self.primary.folder} user=postgres application_name={self.name}"
        copy = ("-D", self._data, "-X", "stream", "-c", "fast")
        self._run("pg_basebackup", "-d", source, *copy, "-R", "-S", self.name)

    def _fill(self):
        """Do nothing: the primary has the role and the database."""

    def follow(self, primary):
        """Start a stopped server again as a standby of `primary`, with a new copy of its data."""
        self.primary = primary
        shutil.rmtree(self._data)
        self._create()
        self.start()

    def promote(self):
        """Make this server a primary, and wait until it is one."""
        with self.admin() as connection:
            connection.execute("SELECT pg_promote()")

    def pause_replay(self):
        """Show no later changes from now on. The standby still receives them."""
        with self.admin() as connection:
            connection.execute("SELECT pg_wal_replay_pause()")
            state = "SELECT pg_get_wal_replay_pause_state()"
            wait_until(lambda: connection.execute(state).fetchone() == ("paused",))

    def resume_replay(self):
        """Replay what was received since `pause_replay`."""
        with self.admin() as connection:
            connection.execute("SELECT pg_wal_replay_resume()")

    def catch_up(self):
        """Wait until the standby has replayed what the primary has committed by now."""
        with self.primary.admin() as connection:
            position = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
        with self.admin() as connection:
            query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            wait_until(lambda: connection.execute(query, position).fetchone() == (True,))


def running_standby(primary, **options):
    """Start a standby of a running server, and stop it when the block ends."""
    return running_server(StandbyServer, primary=primary, **options)
