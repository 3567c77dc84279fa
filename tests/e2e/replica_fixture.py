"""Daemons that use one database, each with a state directory of its own."""

import signal
import threading

from daemon_process import end, memoryd
from memoryd.client import MemorydError, connect
from memoryd.messages import ON_CONFLICT_WAIT, SEARCH_MODE_KEYWORD, SYNC_MODE_FULL
from waiting import wait_until

REBUILD_SECONDS = 60


class ReplicaFixture:
    """The replicas of a database, numbered from 0. `admin` connects to it as the superuser; `url` is its URL."""

    def __init__(self, daemons, url, admin):
        self.served = []
        self._admin = admin
        self._daemons = daemons
        self.use(url)

    def use(self, url):
        """Let the replicas that are started from now on connect with this URL."""
        search = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
        self._daemons.configure(search=search, writes="edit", store={"url": url})

    @property
    def addresses(self):
        return [served.address for served in self.served]

    def import_notes(self, count):
        """Import memory files of some kilobytes each."""
        workspace, config = self._daemons.workspace, self._daemons.config
        for number in range(count):
            body = "\n".join(
                f"Line {line} of the reeds, number{number}z at {line * number % 97}." for line in range(40)
            )
            self._daemons.write(f"memory/{number % 7}/note-{number}.md", f"# Note {number}\n\n{body}\n")
        command = ("import", "folder", workspace, "--config", config, "--state-dir", self._daemons.state)
        done = memoryd(*command, home=self._daemons.home)
        assert done.returncode == 0, done.stderr

    def start(self, count, within=()):
        """Start further replicas, and return the addresses of all. `within` is a command that runs them."""
        for _ in range(count):
            state = self._state(len(self.served))
            state.mkdir()
            self.served.append(self._daemons.start(within, state=state))
        return self.addresses

    def kill(self, number):
        """Kill a replica as a crash of its machine ends it."""
        end(self.served[number].process, signal.SIGKILL)

    def pause_in_transaction(self, number):
        """Stop the process of a replica in the middle of a transaction that writes; no other replica may be writing."""
        query = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xid IS NOT NULL"

        def has_stopped():
            self.served[number].process.send_signal(signal.SIGSTOP)
            if self.rows(query):
                return True
            self.resume(number)
            return False

        wait_until(has_stopped, pause=0.01)

    def resume(self, number):
        """Let a paused replica continue."""
        self.served[number].process.send_signal(signal.SIGCONT)

    def start_again(self, number):
        """Start a replica that has ended."""
        self.served[number] = self._daemons.start(state=self._state(number))

    def _state(self, number):
        return self._daemons.home / f"state{number}"

    def stop(self):
        """Stop all replicas."""
        assert [end(served.process) for served in self.served] == [0] * len(self.served)

    def client(self, number, **options):
        """Connect to a replica."""
        return connect(self.served[number].address, **options)

    def rows(self, query, *values):
        """Return the rows of a query of the superuser, who sees all agents."""
        with self._admin() as connection:
            connection.execute("SET search_path = memoryd, public")
            return connection.execute(query, values).fetchall()

    def indexed(self, path):
        """Return the texts of the chunks of a memory file."""
        query = """SELECT text FROM chunks JOIN files USING (agent_id, generation) JOIN agents
            USING (agent_id, generation) WHERE file_id = files.id AND path = %s ORDER BY start_line"""
        return [text for (text,) in self.rows(query, path)]

    def rebuild(self, number):
        """Begin to rebuild the index at a replica, and return when that has written some of it."""
        rebuild = Rebuild(self.served[number].address)
        rebuild.start()
        prepared = (
            "SELECT 1 FROM files JOIN agents USING (agent_id) WHERE files.generation <> agents.generation LIMIT 1"
        )
        wait_until(lambda: rebuild.has_ended() or self.rows(prepared), pause=0.005)
        assert not rebuild.has_ended(), "the rebuild ended too early"
        return rebuild


class Rebuild(threading.Thread):
    """Rebuild the index at a replica. `last` is the last event, and `error` the error that ended the call."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.last = self.error = None
        self._address = address

    def run(self):
        try:
            with connect(self._address) as connection:
                # The run of an append may be under way.
                options = {"mode": SYNC_MODE_FULL, "on_conflict": ON_CONFLICT_WAIT, "timeout": REBUILD_SECONDS}
                *_, self.last = connection.sync(**options)
        except MemorydError as error:
            self.error = error

    def has_ended(self):
        return not self.is_alive()


def hits(connection, word, revision=0):
    """Search for a word once the index has a revision; repeat the search if it cannot be answered."""
    while True:
        try:
            return connection.search(query=word, mode=SEARCH_MODE_KEYWORD, min_revision=revision).results
        except MemorydError as error:
            if not error.retry_after_seconds:
                raise
