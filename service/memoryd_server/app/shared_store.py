"""SharedStore: the storage and documents of agents in one PostgreSQL database. Imports the driver when it is used."""

import shlex
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from memoryd_server.agent import AgentConfig, AgentDocuments, AgentStorage
from memoryd_server.errors import SettingsError
from memoryd_server.model import Clock, Source
from memoryd_server.observe import DatabaseMetrics
from memoryd_server.settings import DatabaseSettings
from memoryd_server.sources import has_memory_files
from memoryd_server.sqlite import EmbeddingCache
from memoryd_server.store import BuildIdentity, VectorCache

if TYPE_CHECKING:
    from memoryd_server.postgres import Database, DocumentWriter, PostgresWriteHistory


def database_of(settings: DatabaseSettings) -> "Database":
    """Return the database of the settings, to which nothing is connected yet.

    Raises:
        SettingsError: the driver or its library is not installed.
    """
    try:
        from memoryd_server.postgres import Database, DatabaseConfig  # noqa: PLC0415 -- an extra
    except ImportError as error:
        if error.name is not None and error.name.startswith("memoryd_server"):
            raise
        # Also that psycopg finds no libpq: without its extra `binary`, it needs the library of the system.
        raise SettingsError(
            f"memoryd.store.url needs the package {error.name or 'psycopg[binary]'}: pip install 'memoryd[postgres]'"
        ) from error
    url, standby_url, more = settings.url, settings.standby_url, (settings.password_file, settings.max_connections)
    return Database(
        DatabaseConfig("" if url is None else url.get_secret_value(), *more),
        standby=None if standby_url is None else DatabaseConfig(standby_url.get_secret_value(), *more, is_standby=True),
    )


class SharedStore:
    """Makes the index, the cache and the history of agents in the database of `memoryd.store`. Thread-safe.

    The agents share its connections. `on_standby_failure` is called with the reason if the standby begins to fail.
    """

    def __init__(
        self, settings: DatabaseSettings, on_standby_failure: Callable[[str], None] = lambda _reason: None
    ) -> None:
        self._settings = settings
        self._on_standby_failure = on_standby_failure
        self._guard = threading.Lock()
        self._database: Database | None = None
        self._on_abandoned: Callable[[str], None] | None = None

    def _opened(self) -> "Database":
        """Return the database, to which nothing is connected yet. Raises as `database_of`."""
        with self._guard:
            if self._database is None:
                self._database = database_of(self._settings)
                self._report_abandoned(self._database)
                if self._database.standby is not None:
                    self._database.standby.on_failure = self._on_standby_failure
            return self._database

    def on_abandoned(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with each agent whose index another daemon has left unfinished, as `Replica.on_abandoned`."""
        with self._guard:
            self._on_abandoned = callback
            if self._database is not None:
                self._report_abandoned(self._database)

    def _report_abandoned(self, database: "Database") -> None:
        if self._on_abandoned is not None:
            database.replica.on_abandoned(self._on_abandoned)

    def metrics(self) -> DatabaseMetrics | None:
        """Return the metrics of the database; None if no agent uses it."""
        with self._guard:
            return None if self._database is None else self._database.metrics()

    def storage(self, config: AgentConfig, identity: BuildIdentity) -> AgentStorage:
        """Keep an agent's index and vector cache in the database. Raises as `_opened`."""
        database = self._opened()
        from memoryd_server.postgres import (  # noqa: PLC0415 -- as above
            PostgresEmbeddingCache,
            PostgresStandby,
            PostgresStore,
            cached_bytes,
        )

        agent_id = config.agent_id

        def open_cache(now_ms: Callable[[], int]) -> VectorCache:
            # A disabled cache holds no vectors, and remembers refused texts until the daemon stops.
            if not config.cache_enabled:
                return EmbeddingCache(None, 0, now_ms)
            return PostgresEmbeddingCache(database, agent_id, config.cache_max_entries, now_ms)

        store = PostgresStore(
            database,
            agent_id,
            identity,
            approximate_above=self._settings.approximate_above,
            keeps_lease=self._settings.documents == "folder",
        )
        standby = database.standby
        return AgentStorage(
            store,
            open_cache,
            lambda: cached_bytes(database, agent_id),
            None if standby is None else PostgresStandby(standby, agent_id, lambda: store.hnsw_index),
        )

    def history(self, config: AgentConfig, now_ms: Callable[[], int]) -> "PostgresWriteHistory":
        """Keep the history of an agent's writes in the database. Raises as `_opened`."""
        database = self._opened()
        from memoryd_server.postgres import PostgresWriteHistory  # noqa: PLC0415 -- as above

        return PostgresWriteHistory(
            database,
            config.agent_id,
            max_age_seconds=config.history_seconds,
            max_bytes=config.history_bytes,
            now_ms=now_ms,
        )

    def documents(self, config: AgentConfig, clock: Clock, report: Callable[[str, str], None]) -> AgentDocuments:
        """Keep the memory files and transcripts of an agent in the database. Raises as `_opened`.

        `report(agent_id, reason)` is called each time when the database has no memory files, but the workspace has.
        """

        def now_ms() -> int:
            return clock.now_ns() // 1_000_000

        def unread_files() -> str:
            reason = unread_workspace(config.agent_id, config.unread_workspace)
            if reason:
                report(config.agent_id, reason)
            return reason

        history = self.history(config, now_ms)
        from memoryd_server.postgres import DocumentCorpus, ForgottenRows, TranscriptRows  # noqa: PLC0415 -- as above

        database = history.documents()
        indexed = (Source.MEMORY in config.sources, Source.SESSIONS in config.sources)
        return AgentDocuments(
            DocumentCorpus(database, config.roots, *indexed, unread_files),
            document_writer(config, history, now_ms),
            history,
            ForgottenRows(database),
            TranscriptRows(database, now_ms),
        )


def unread_workspace(agent_id: str, workspace: str) -> str:
    """Return what to do with the memory files in a workspace that is not read; empty if it has none. Blocks."""
    if not has_memory_files(workspace):
        return ""
    command = f"memoryd import folder {shlex.quote(workspace)} --agent {shlex.quote(agent_id)}"
    return (
        "the database of memoryd.store.url has no memory files of this agent, and those in its workspace are not read: "
        f'run `{command}`, or set memoryd.store.documents to "folder"'
    )


def document_writer(
    config: AgentConfig, history: "PostgresWriteHistory", now_ms: Callable[[], int]
) -> "DocumentWriter":
    """Return what writes the memory files of an agent whose history is in the database."""
    from memoryd_server.postgres import DocumentWriter  # noqa: PLC0415 -- an extra

    return DocumentWriter(
        config.roots,
        history,
        max_file_bytes=config.sync.max_file_bytes,
        now_ms=now_ms,
        new_id=lambda: uuid.uuid4().hex,
    )
