"""An index file with vectors alone, and vector indexes that receive every change as from the writer thread."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from memoryd_server.model import Source
from memoryd_server.sqlite import schema
from memoryd_server.sqlite.connection import open_writer, transaction
from memoryd_server.sqlite.reader import ReaderCaches, reading
from memoryd_server.sqlite.readers import ReaderPool
from memoryd_server.sqlite.vector_index import VectorIndex
from memoryd_server.store.filters import ChunkFilter

PLENTY = 1 << 30


def blob(vector):
    vector = np.asarray(vector, np.float64)
    return (vector / np.linalg.norm(vector)).astype("<f4").tobytes()


def clusters(count, dimensions, seed=0, centres=40, spread=0.6):
    """Return unit vectors like those of embedding models: around some centres, all on one side of the origin."""
    random = np.random.default_rng(seed)
    middle = random.standard_normal((centres, dimensions)) + 0.3
    points = middle[random.integers(0, centres, count)] + spread * random.standard_normal((count, dimensions))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def numbered(vectors, first=1):
    return dict(enumerate(vectors, first))


def residency_of(vector_index):
    return vector_index.resident


def resident_of(vector_index):
    """Return the vectors in memory; None before the first load."""
    return residency_of(vector_index)._resident


class VectorFixture:
    """Hold an index with one file per source; chunks belong to the first source by default."""

    def __init__(self, folder):
        self.path = folder / "vectors.sqlite"
        self.connection = open_writer(self.path)
        with transaction(self.connection):
            schema.create(self.connection, SimpleNamespace(to_json=lambda: "{}"), after_revision=0)
            for number, source in enumerate(Source, 1):
                self.connection.execute(
                    "INSERT INTO files(id, source, path, hash, size_bytes, mtime_ns, ctime_ns, device, inode,"
                    " chunk_count) VALUES(?,?,?,x'',0,0,0,0,0,0)",
                    (number, source, f"{source}.md"),
                )
        self.pool = ReaderPool(self.path, 4)
        self.last = ReaderCaches()
        self.vector_indexes = []

    def close(self):
        self.pool.close()
        self.connection.close()

    def new_vector_index(self, *, probed=True, **options):
        vector_index = VectorIndex(
            **{"sqlite_vec": False, "extension_path": None, "memory_budget_bytes": PLENTY, **options}
        )
        if probed:
            vector_index.probe()
        self.vector_indexes.append(vector_index)
        return vector_index

    def commit(self, added=None, removed=(), source=Source.MEMORY):
        """Commit one transaction, then apply it to every vector index."""
        blobs = {number: v if isinstance(v, bytes) else blob(v) for number, v in (added or {}).items()}
        gone = [(number,) for number in {*removed, *blobs}]
        file_id = list(Source).index(source) + 1
        with transaction(self.connection):
            self.connection.executemany("DELETE FROM vectors WHERE chunk_id = ?", gone)
            self.connection.executemany("DELETE FROM chunks WHERE id = ?", gone)
            self.connection.executemany(
                "INSERT INTO chunks(id, file_id, start_line, end_line, content_hash, breadcrumb, text)"
                " VALUES(?, ?, 1, 1, x'', '', '')",
                [(number, file_id) for number in blobs],
            )
            self.connection.executemany("INSERT INTO vectors VALUES(?, ?)", list(blobs.items()))
            schema.set_meta(self.connection, "revision", int(schema.get_meta(self.connection, "revision")) + 1)
        for vector_index in self.vector_indexes:
            vector_index.resident.apply(blobs, removed)

    @contextmanager
    def read(self, deadline=None):
        with reading(self.pool, self.last, deadline) as reader:
            yield reader

    def search(self, vector_index, query, limit=10, sources=()):
        with self.read() as reader:
            among = ChunkFilter(sources=tuple(sources))
            return vector_index.search(reader, np.asarray(query, np.float32), limit, among)

    def exact(self, query, limit=10, among=None):
        """Return (id, cosine) of the nearest vectors, computed from the blobs."""
        direction = np.asarray(query, np.float32).astype(np.float64)
        direction /= np.linalg.norm(direction)
        found = [
            (number, float(np.frombuffer(stored, "<f4").astype(np.float64) @ direction))
            for number, stored in self.connection.execute("SELECT chunk_id, embedding FROM vectors").fetchall()
            if len(stored) == 4 * len(direction) and (among is None or number in among)
        ]
        # Rounded, because equal vectors must count as equal however their products were added up.
        return sorted(found, key=lambda row: (-round(row[1], 12), row[0]))[:limit]


def check_same(hits, expected):
    assert [hit.chunk_id for hit in hits] == [number for number, _ in expected]
    assert all(abs(hit.cosine - cosine) < 1e-5 for hit, (_, cosine) in zip(hits, expected, strict=True))
