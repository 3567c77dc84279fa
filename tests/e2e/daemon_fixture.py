"""A workspace on disk, daemons that serve it, and searches against them."""

import contextlib
import json
import threading
import time

import apsw

from daemon_process import end, start
from memoryd.client import MemorydError, connect
from waiting import WAIT_SECONDS


class DaemonFixture:
    """Hold a workspace, a state directory and the daemons started on them; `close` stops the daemons."""

    def __init__(self, folder):
        self.home = folder
        self.workspace = folder / "workspace"
        self.memory = self.workspace / "memory"
        self.memory.mkdir(parents=True)
        self.state = folder / "state"
        self.state.mkdir()
        self.index = self.state / "memory" / "main.memoryd.sqlite"
        self.log = folder / "daemon.log"
        self.config = folder / "memoryd.json5"
        self.configure()
        self._ends = contextlib.ExitStack()

    def configure(self, *, debounce_ms=200, reconcile_seconds=60, watch=True, search=None, **limits):
        search = {"sync": {"watch": watch, "watchDebounceMs": debounce_ms}, **(search or {})}
        ours = {"reconcileSeconds": reconcile_seconds, "log": {"level": "info", "format": "json"}, **limits}
        self.config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": ours}))

    def start(self, within=(), *, state=None):
        """Start a daemon, by default with the state directory of the fixture; `within` is a command that runs it."""
        state = state or self.state
        served = start(self.workspace, state, "--config", self.config, home=self.home, within=within)
        self._ends.callback(end, served.process)
        return served

    def close(self):
        self._ends.close()

    def events(self, name):
        """Return the log events named `name`."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in found if event["event"] == name]

    def write(self, path, text):
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def contents(self):
        """Return (SQLite's verdict, paths, chunks, keyword rows, other files) of an index that no process has open."""
        connection = apsw.Connection(str(self.index))
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
        paths = [row[0] for row in connection.execute("SELECT path FROM files WHERE error IS NULL ORDER BY path")]
        chunks = connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
        keyword = connection.execute("SELECT count(*) FROM keyword").fetchone()[0]
        connection.close()
        known = {f"main.memoryd.sqlite{part}" for part in ("", ".lock", "-wal", "-shm")}
        known |= {f"main.memoryd.embeddings.sqlite{part}" for part in ("", "-wal", "-shm")}
        return verdict, paths, chunks, keyword, {file.name for file in self.index.parent.iterdir()} - known


@contextlib.contextmanager
def client(served):
    with connect(served.address) as connection:
        yield connection


def paths(connection, query, most=50):
    return [hit.path for hit in connection.search(query=query, max_results=most).results]


def last_event(connection, **fields):
    """Sync and return the last event."""
    *_, last = connection.sync(timeout=WAIT_SECONDS, **fields)
    return last.completed


class SearchLoop:
    """Search in a loop while the block runs; `answers` holds the numbers of hits, `errors` the error messages."""

    def __init__(self, served, query):
        self.answers, self.errors, self.slowest = [], [], 0.0
        self._served, self._query = served, query
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with client(self._served) as connection:
            while not self._stop.wait(0.005):
                began = time.monotonic()
                try:
                    self.answers.append(len(connection.search(query=self._query).results))
                except MemorydError as error:
                    self.errors.append(str(error))
                self.slowest = max(self.slowest, time.monotonic() - began)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(30)
