"""IndexSnapshots: an index file that another process writes, for searches on one thread."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray

from memoryd_server.errors import MemorydError
from memoryd_server.sqlite.connection import FileIds, file_ids, file_lost, open_present_reader
from memoryd_server.sqlite.reader import ReaderCaches, SqliteReader, reading
from memoryd_server.sqlite.readers import ReaderPool
from memoryd_server.sqlite.resident import PAGE_ROWS
from memoryd_server.sqlite.vector_index import VectorIndex
from memoryd_server.store import ChunkFilter, VectorHit

# The page cache: half of that of the writer's process, because there may be several processes. With 15,000 chunks and
# their vectors, each takes 27 MB less, and searches take the same CPU time.
_PAGE_CACHE = "PRAGMA cache_size=-24000"

# The timeout of the probe of sqlite-vec, for which the first vector search waits. Without sqlite-vec, numpy returns the
# same results.
_PROBE_SECONDS = 2.0


class IndexSnapshots:
    """Snapshots of the index at `path`, whose writer is another process. Every method is for the same thread.

    `ids` are those of the writer's files. If those at the path have others, nothing is read: without the writer's log,
    for example, later commits would not be seen. None means that only the existence of the index is checked. The file
    is opened by the first `read`, and again by the first `read` after `close`. The writer's process reports each commit
    that changes vectors by `vectors_changed` or `reset_vectors`. Which engine scans stored vectors is determined by the
    first search for vectors.
    """

    def __init__(self, path: Path, ids: FileIds | None, vectors: VectorIndex) -> None:
        self._path = path
        self._ids = ids
        self._vectors = vectors
        self._caches = ReaderCaches()
        self._pool = ReaderPool(path, 1, self._open)
        self._is_probed = False

    @contextmanager
    def read(self, deadline: float | None = None) -> Iterator[SqliteReader]:
        """Open one snapshot of the index, which can be read until `time.monotonic()` passes `deadline`.

        Raises:
            DeadlineTooShort: the deadline passed during the read.
            IndexDamaged: the index is damaged, or one of its files is gone or replaced.
            IndexUnavailable: the index cannot be read.
        """
        with reading(self._pool, self._caches, deadline, self._nearest) as reader:
            self._check_files()
            yield reader

    def _check_files(self) -> None:
        if not self._path.exists() if self._ids is None else file_ids(self._path) != self._ids:
            raise file_lost(self._path)

    def _open(self, path: Path) -> apsw.Connection:
        # Without one of the files, SQLite would create another, and read the whole log for it.
        self._check_files()
        connection = open_present_reader(path)
        connection.execute(_PAGE_CACHE).fetchall()
        return connection

    def _nearest(
        self, reader: SqliteReader, query: NDArray[np.float32], limit: int, among: ChunkFilter
    ) -> list[VectorHit]:
        if not self._is_probed:
            self._vectors.probe(_PROBE_SECONDS)
            self._is_probed = True
        return self._vectors.search(reader, query, limit, among)

    def vectors_changed(self, added: Sequence[int], removed: Collection[int]) -> None:
        """Apply a commit to the vectors in memory: `added` are the chunks with a new vector, `removed` those without.

        The vectors are read from the index, in which a later commit may have changed or deleted them again. Such a
        commit is reported later.
        """
        resident = self._vectors.resident
        if resident.is_empty:
            return
        resident.apply({}, removed)
        try:
            with self.read() as reader:
                for first in range(0, len(added), PAGE_ROWS):
                    resident.apply(dict(reader.embeddings_of(added[first : first + PAGE_ROWS])), ())
        except MemorydError:
            # The next search reports the error, or else loads all vectors again.
            resident.reset()

    def reset_vectors(self) -> None:
        """Drop the vectors in memory; the next search loads them again."""
        self._vectors.reset()

    def release_memory(self) -> None:
        """Release the memory of an idle index, and close its connection; the next `read` opens it again."""
        self._vectors.release_memory()
        self._caches.release_memory()
        self._pool.release()

    def close(self) -> None:
        """Close the connection and drop everything in memory; the next `read` opens the file again."""
        self._vectors.reset()
        self._caches = ReaderCaches()
        self._pool.release()
