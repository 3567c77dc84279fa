"""What tests read and change in the SQLite files of a daemon without the daemon; `databases.py` has its counterpart."""

import shutil
import sqlite3
from contextlib import closing, contextmanager

import apsw

from memoryd_server.sqlite.history import SqliteWriteHistory
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.system import FileLock

PAGE = 4096


class SqliteFiles:
    """The files of a home."""

    is_sqlite = True
    store_class = SqliteStore
    vector_engines = frozenset({"sqlite-vec", "exact"})
    operations = frozenset()

    def __init__(self, home):
        self._folder = home.state_dir / "memory"
        self._state_dir = home.state_dir
        self.location = str(self.index())

    def index(self, agent_id="main"):
        return self._folder / f"{agent_id}.memoryd.sqlite"

    def history_file(self, agent_id="main"):
        return self._folder / f"{agent_id}.history.sqlite"

    def agent_of(self, store):
        """Return the ID of the agent of a store."""
        return store.path.name.removesuffix(".memoryd.sqlite")

    def interceptors(self, _home):
        """Return the interceptors of the client."""
        return ()

    def waiting_calls(self):
        """Return (object, name, event) of functions that wait for the database; apsw has hooks for this."""
        return ()

    def change(self, *values, sqlite, postgres=None, agent_id="main"):
        """Execute a statement in the index, and return how many rows it changed; the daemon may be running."""
        # Another SQLite library of the same process would ignore the locks of this one.
        with closing(apsw.Connection(str(self.index(agent_id)))) as connection:
            connection.set_busy_timeout(10_000)
            connection.execute(sqlite, values)
            return connection.changes()

    def change_history(self, *values, sqlite, postgres=None):
        """Execute a statement in the history of the agent `main`."""
        with closing(apsw.Connection(str(self.history_file()))) as connection:
            connection.execute(sqlite, values)

    def rows(self, *values, sqlite, postgres=None):
        """Return the rows of a query of the index of the agent `main`."""
        with closing(apsw.Connection(str(self.index()))) as connection:
            return connection.execute(sqlite, values).fetchall()

    def lose_index(self, agent_id="main"):
        """Remove the index of an agent, which may be open if it is idle, but not its cache of vectors."""
        for file in self._folder.glob(f"{agent_id}.memoryd.sqlite*"):
            if not file.name.endswith(".lock"):
                file.unlink()

    def checkpoint(self, running):
        """Move the log of the index of the agent `main` into its file."""
        running.memory().index.store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def damage_index(self, running):
        """Damage the index of the agent `main`, so that each search notices it."""
        if not running.stopped:
            self.checkpoint(running)
        size = self.index().stat().st_size
        with self.index().open("r+b") as file:
            file.seek(PAGE)
            file.write(bytes(size - PAGE))

    def remove_indexes(self):
        """Remove the indexes of all agents."""
        shutil.rmtree(self._folder)

    def block(self, agent_id):
        """Keep an agent's index from being created or opened, until `unblock`."""
        self.index(agent_id).mkdir(parents=True)

    def unblock(self, agent_id):
        self.index(agent_id).rmdir()

    @contextmanager
    def held(self, agent_id):
        """Lock the index of an agent, as another daemon would, while the block runs. Raises IndexBusy."""
        self._folder.mkdir(exist_ok=True)
        lock = FileLock(self.index(agent_id).with_name(f"{self.index(agent_id).name}.lock"))
        lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def history(self, now_ms):
        """Return the history of the agent `main`, while no daemon uses it."""
        return SqliteWriteHistory(self.history_file(), max_age_seconds=1e6, max_bytes=2**20, now_ms=now_ms)

    def history_rows(self, agent_id="main"):
        """Return the numbers of records and of contents in the history of an agent."""
        with closing(sqlite3.connect(f"file:{self.history_file(agent_id)}?mode=ro", uri=True)) as connection:
            count = "SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM contents)"
            return connection.execute(count).fetchone()

    def places_of(self, word, *, within="", ignoring=()):
        """Return the files of the state directory with the word, whatever its case.

        Only files with `within` in their names are searched, and none with one of the names in `ignoring`.
        """
        files = [file for file in self._state_dir.rglob("*") if file.is_file() and file.name not in ignoring]
        assert [file for file in files if file.suffix == ".sqlite"], "nothing is stored"
        files = [file for file in files if within in file.name]
        return [str(file) for file in files if word.lower().encode() in file.read_bytes().lower()]

    def bm25(self, terms):
        """Return the BM25 of SQLite for some terms, negative, by path; the name of a note counts half."""
        query = """SELECT path, bm25(keyword, 1.0, 0.5) FROM keyword JOIN chunks ON chunks.id = keyword.rowid
            JOIN files ON files.id = file_id WHERE keyword MATCH ?"""
        return dict(self.rows(" OR ".join(f'"{term}"' for term in terms), sqlite=query))
