"""The SQLite driver of `memoryd_server.store`, and the only package that imports apsw."""

from memoryd_server.sqlite.connection import bound_page_caches, size_bytes
from memoryd_server.sqlite.embedding_cache import EmbeddingCache
from memoryd_server.sqlite.history import SqliteWriteHistory
from memoryd_server.sqlite.schema import probe_keyword_engine, sqlite_options, sqlite_version
from memoryd_server.sqlite.snapshots import IndexSnapshots
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.sqlite.stored_cache import open_index_vectors, open_stored_cache
from memoryd_server.sqlite.stored_files import StoredFileUnusable, stored_cache_path, stored_index_path, unused
from memoryd_server.sqlite.stored_history import open_stored_history
from memoryd_server.sqlite.vector_index import VectorIndex, probe_vector_extension

__all__ = [
    "EmbeddingCache",
    "IndexSnapshots",
    "SqliteStore",
    "SqliteWriteHistory",
    "StoredFileUnusable",
    "VectorIndex",
    "bound_page_caches",
    "open_index_vectors",
    "open_stored_cache",
    "open_stored_history",
    "probe_keyword_engine",
    "probe_vector_extension",
    "size_bytes",
    "sqlite_options",
    "sqlite_version",
    "stored_cache_path",
    "stored_index_path",
    "unused",
]
