"""A workspace with its index on a real disk, an observer that records, and searches in the background."""

import contextlib
import dataclasses
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from memoryd_server.chunk.markdown import CHUNKER_VERSION
from memoryd_server.model import Clock
from memoryd_server.search import keyword
from memoryd_server.sources.files import read_file
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.roots import Roots
from memoryd_server.sqlite.connection import open_reader, snapshot
from memoryd_server.sqlite.history import SqliteWriteHistory
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.store.filters import ALL_CHUNKS, ChunkFilter
from memoryd_server.store.identity import BuildIdentity
from memoryd_server.sync.engine import SyncEngine
from memoryd_server.sync.plan import SyncPlanner
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import SyncMode
from memoryd_server.text.analyzer import Analyzer

IDENTITY = BuildIdentity(str(CHUNKER_VERSION), 400, 80)
OTHER_IDENTITY = dataclasses.replace(IDENTITY, chunk_tokens=40)
ANALYZER = Analyzer()
MOST_FILE_BYTES = 8 * 1024 * 1024


@dataclass
class RecordingObserver:
    """Record what a sync run reports. `on_progress` is called with each progress."""

    progresses: list = field(default_factory=list)
    failures: list = field(default_factory=list)
    revisions: list = field(default_factory=list)
    on_progress: object = None

    def progress(self, progress):
        self.progresses.append(progress)
        if self.on_progress is not None:
            self.on_progress(progress)

    def file_failed(self, failure):
        self.failures.append(failure)

    def committed(self, revision):
        self.revisions.append(revision)

    def errors(self):
        return {failure.path: failure.error for failure in self.failures}


def connection_of(reader):
    """Return the SQLite connection of a reader."""
    return reader._connection


def ids_of(reader, *sources):
    """Return the ids of the chunks of these sources, ascending."""
    return reader.selected(ChunkFilter(sources=sources)).ids.tolist()


class IndexFixture:
    """Hold a workspace and its index at `path`. Set `now_ns` and `read_file` to use another clock or reader."""

    def __init__(self, folder: Path, *, name="main.sqlite", extra_paths=(), max_file_bytes=MOST_FILE_BYTES):
        self.workspace = folder / "workspace"
        (self.workspace / "memory").mkdir(parents=True, exist_ok=True)
        self.roots = Roots(str(self.workspace), extra_paths)
        self.path = folder / "state" / name
        self.max_file_bytes = max_file_bytes
        self.store = SqliteStore(self.path, IDENTITY)
        self.now_ns = time.time_ns
        self.read_file = read_file
        self.history = self._history()

    def open(self, identity=IDENTITY):
        self.store = SqliteStore(self.path, identity)
        self.store.open()
        self.history = self._history()
        return self

    def _history(self):
        path = self.path.with_name("main.history.sqlite")
        now_ms = lambda: self.now_ns() // 1_000_000  # noqa: E731 -- the clock may be replaced later
        return SqliteWriteHistory(path, max_age_seconds=86_400, max_bytes=2**28, now_ms=now_ms)

    def close(self):
        self.store.close()
        self.history.close()

    def reopen(self, identity=IDENTITY):
        self.close()
        return self.open(identity)

    def write(self, path, text):
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def engine(self, *, files_per_transaction=100, clock=None):
        clock = clock or Clock(now_ns=self.now_ns)
        corpus = FolderCorpus(self.roots)
        files = {"read": self.read_file, "open_transcript": corpus.open_transcript}
        preparer = FilePreparer(ANALYZER, self.identity, self.max_file_bytes, clock.now_ns, **files)
        return SyncEngine(
            self.store,
            SyncPlanner(corpus),
            preparer,
            files_per_transaction=files_per_transaction,
            clock=clock,
        )

    def sync(self, mode=SyncMode.INCREMENTAL, observer=None, should_stop=lambda: False, **options):
        return self.engine(**options).run(mode, observer or RecordingObserver(), should_stop)

    @property
    def identity(self):
        return self.store._identity

    @property
    def connection(self):
        """The connection of the writer thread."""
        return self.store._connection

    @property
    def reader_pool(self):
        return self.store._pool

    @property
    def idle_readers(self):
        return self.reader_pool._idle

    @property
    def reader_caches(self):
        return self.store._caches

    def sql(self, statement, arguments=()):
        """Execute a statement on the writer's connection and return its rows."""
        return self.connection.execute(statement, arguments).fetchall()

    def revision(self):
        with self.store.read() as reader:
            return reader.revision

    def paths(self):
        """Return the paths of the files indexed without an error, sorted."""
        with self.store.read() as reader:
            return sorted(row.path for row in reader.files().values() if row.error is None)

    def found(self, query, limit=1000):
        """Return the paths that keyword search finds, best first."""
        return [path for path, _, _ in self.hits(query, limit)]

    def hits(self, query, limit=1000):
        """Return (path, first line, BM25) of each chunk that keyword search finds, best first."""
        with self.store.read() as reader:
            chunks = reader.counts().chunks
            terms = ANALYZER.query_terms(query, reader.counts().languages)
            answer = keyword.search(reader, terms, ALL_CHUNKS, enough=limit, limit=limit, chunk_count=chunks)
            rows = reader.chunks([hit.chunk_id for hit in answer.hits])
            return [(rows[h.chunk_id].path, rows[h.chunk_id].start_line, h.bm25) for h in answer.hits]

    def rows(self):
        """Return every chunk and file row, for comparison with an index built from scratch."""
        with self.store.read() as reader:
            connection = connection_of(reader)
            chunks = connection.execute(
                "SELECT path, source, start_line, end_line, text, content_hash, breadcrumb"
                " FROM chunks JOIN files ON files.id = file_id"
            ).fetchall()
            files = connection.execute("SELECT path, source, hash, chunk_count, metadata, error FROM files").fetchall()
            return sorted(chunks), sorted(files, key=str)

    def integrity(self):
        """Return SQLite's verdict, and whether each chunk has its file, a keyword row, and a vector or a pending row.

        Opens a separate connection: FTS5's part of integrity_check trusts the list of segments that its connection read
        last, so a connection that read the index before another one wrote it reports damage that does not exist.
        """
        with contextlib.closing(open_reader(self.path)) as connection, snapshot(connection):
            return (
                connection.execute("PRAGMA integrity_check").fetchall(),
                connection.execute("SELECT count(*) FROM chunks").fetchall()
                == connection.execute("SELECT count(*) FROM keyword").fetchall(),
                connection.execute(
                    "SELECT count(*) FROM chunks WHERE file_id NOT IN (SELECT id FROM files)"
                ).fetchall(),
                connection.execute("SELECT id FROM chunks ORDER BY id").fetchall()
                == connection.execute(
                    "SELECT chunk_id FROM vectors UNION ALL SELECT * FROM unembedded ORDER BY 1"
                ).fetchall(),
            )

    def file_names(self):
        """Return the names of the files in the index's folder, sorted."""
        return sorted(file.name for file in self.path.parent.iterdir())


SOUND = ([("ok",)], True, [(0,)], True)


@contextlib.contextmanager
def searching(index, query, path, *, threads=4):
    """Search on several threads during the block. Every search must find `path` alone, and every thread must search."""
    stop, failures, answered = threading.Event(), [], [0] * threads

    def search(which):
        while not stop.wait(0.002):
            try:
                if index.found(query) != [path]:
                    failures.append("not found")
                answered[which] += 1
            except Exception as error:  # noqa: BLE001 -- reported by the assertion
                failures.append(repr(error))

    running = [threading.Thread(target=search, args=(which,)) for which in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join(20)
    assert failures == []
    assert min(answered) > 0
