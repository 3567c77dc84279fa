"""The PostgreSQL driver of the store and of documents, and the only package that imports psycopg."""

from memoryd_server.postgres.agent_database import AgentDatabase
from memoryd_server.postgres.append_key_copy import AppendKeyCopy
from memoryd_server.postgres.cache_copy import CacheCopy, ProviderRecordCopy
from memoryd_server.postgres.config import DatabaseConfig
from memoryd_server.postgres.connection import Database
from memoryd_server.postgres.copy_report import CopyOptions, CopyReport
from memoryd_server.postgres.document_writer import DocumentWriter
from memoryd_server.postgres.documents import DocumentCorpus
from memoryd_server.postgres.embedding_cache import PostgresEmbeddingCache, cached_bytes
from memoryd_server.postgres.folder_copy import FolderCopy
from memoryd_server.postgres.forgotten import ForgottenRows
from memoryd_server.postgres.history import PostgresWriteHistory
from memoryd_server.postgres.history_copy import HistoryCopy
from memoryd_server.postgres.import_target import DatabaseNotes, DatabaseTranscripts
from memoryd_server.postgres.inspection import (
    DatabaseInspection,
    StandbyInspection,
    inspect_database,
    inspect_standby,
)
from memoryd_server.postgres.standby_view import PostgresStandby
from memoryd_server.postgres.store import PostgresStore
from memoryd_server.postgres.transcript_copy import TranscriptCopy
from memoryd_server.postgres.transcripts import TranscriptRows

__all__ = [
    "AgentDatabase",
    "AppendKeyCopy",
    "CacheCopy",
    "CopyOptions",
    "CopyReport",
    "Database",
    "DatabaseConfig",
    "DatabaseInspection",
    "DatabaseNotes",
    "DatabaseTranscripts",
    "DocumentCorpus",
    "DocumentWriter",
    "FolderCopy",
    "ForgottenRows",
    "HistoryCopy",
    "PostgresEmbeddingCache",
    "PostgresStandby",
    "PostgresStore",
    "PostgresWriteHistory",
    "ProviderRecordCopy",
    "StandbyInspection",
    "TranscriptCopy",
    "TranscriptRows",
    "cached_bytes",
    "inspect_database",
    "inspect_standby",
]
