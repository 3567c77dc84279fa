"""The PostgreSQL driver of `memoryd_server.store`, and the only package that imports psycopg."""

from memoryd_server.postgres.config import DatabaseConfig
from memoryd_server.postgres.connection import Database
from memoryd_server.postgres.embedding_cache import PostgresEmbeddingCache, cached_bytes
from memoryd_server.postgres.history import PostgresWriteHistory
from memoryd_server.postgres.inspection import DatabaseInspection, inspect_database
from memoryd_server.postgres.store import PostgresStore

__all__ = [
    "Database",
    "DatabaseConfig",
    "DatabaseInspection",
    "PostgresEmbeddingCache",
    "PostgresStore",
    "PostgresWriteHistory",
    "cached_bytes",
    "inspect_database",
]
