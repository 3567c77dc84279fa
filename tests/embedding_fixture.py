"""An index whose syncs embed, with the vector index that receives every change."""

import numpy as np

from index_fixture import ANALYZER, IDENTITY, IndexFixture, RecordingObserver, connection_of
from memoryd_server.embedding.cost import CostLimit
from memoryd_server.embedding.embedder import Embedder
from memoryd_server.embedding.failover import ProviderFailover
from memoryd_server.model import Clock
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sqlite.embedding_cache import EmbeddingCache
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.sqlite.vector_index import VectorIndex
from memoryd_server.sync.engine import SyncEngine
from memoryd_server.sync.plan import SyncPlanner
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import SyncMode
from word_provider import WordProvider, word_vector

FREE = CostLimit(0, remote=True)


def new_vector_index():
    return VectorIndex(sqlite_vec=False, extension_path=None, memory_budget_bytes=1 << 30)


def cache_connection(cache):
    """Return the SQLite connection of an embedding cache."""
    return cache._file._connection


class EmbeddingFixture:
    """Hold an index with a provider and a cache; `use` changes the provider, `open` the chunking."""

    def __init__(self, folder):
        self.index = IndexFixture(folder)
        self.vector_index = new_vector_index()
        self.cache = None
        self.provider = WordProvider()
        self.open(IDENTITY)

    def open(self, identity):
        self.index.close()
        self.index.store = SqliteStore(self.index.path, identity, self.vector_index)
        self.index.store.open()
        self.cache = self.cache or EmbeddingCache(self.index.path.with_name("c.sqlite"), 10_000, lambda: 1)
        self.use(self.provider)

    def use(self, provider, guard=FREE):
        self.provider = provider
        self.embedder = Embedder(provider, lambda: self.cache, guard)
        with self.index.store.read() as reader:
            self.embedder.load_state(reader)

    def close(self):
        if self.cache is not None:
            self.cache.close()
        self.index.close()

    def write(self, **texts):
        for name, text in texts.items():
            self.index.write(f"memory/{name}.md", text)

    def remove(self, name):
        (self.index.workspace / "memory" / f"{name}.md").unlink()

    def engine(self, clock=None, new_preparer=FilePreparer):
        clock = clock or Clock()
        corpus = FolderCorpus(self.index.roots)
        files = {"read": corpus.read, "open_transcript": corpus.open_transcript}
        preparer = new_preparer(ANALYZER, self.index.identity, 1 << 20, clock.now_ns, **files)
        survey = SyncPlanner(corpus)
        return SyncEngine(
            self.index.store, survey, preparer, files_per_transaction=100, clock=clock, failover=self.sync_failover()
        )

    def sync_failover(self):
        return ProviderFailover(self.embedder)

    def sync(self, mode=SyncMode.INCREMENTAL, observer=None, should_stop=lambda: False):
        return self.engine().run(mode, observer or RecordingObserver(), should_stop)

    def vectors(self):
        """Return the vectors by the text of their chunk."""
        with self.index.store.read() as reader:
            rows = (
                connection_of(reader)
                .execute("SELECT text, embedding FROM vectors JOIN chunks ON chunks.id = chunk_id")
                .fetchall()
            )
            count = connection_of(reader).execute("SELECT count(*) FROM vectors").fetchone()[0]
        assert count == len(rows), "a vector without a chunk"
        return {text: np.frombuffer(blob, "<f4") for text, blob in rows}

    def nearest(self, text, vector_index=None, limit=1_000):
        with self.index.store.read() as reader:
            hits = (vector_index or self.vector_index).search(
                reader, word_vector(text, self.provider.dimensions), limit
            )
            rows = reader.chunks([hit.chunk_id for hit in hits])
        return [(rows[hit.chunk_id].path, round(hit.cosine, 5)) for hit in hits]

    def missing(self):
        with self.index.store.read() as reader:
            return reader.count_pending()
