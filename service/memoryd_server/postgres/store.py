"""PostgresStore: one agent's index in a PostgreSQL database.

The process that opens an index locks the agent and raises its fence, which every later write checks. A rebuild writes
the next generation of the agent's rows, and replaces the current one in one transaction.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Final, TypeVar

from memoryd_server.errors import DiskFull, IndexDamaged, IndexReadOnly, IndexUnavailable, MemorydError, SyncCancelled
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.postgres import maintenance, schema
from memoryd_server.postgres.connection import Database, DatabaseUse
from memoryd_server.postgres.hnsw import AgentHnsw
from memoryd_server.postgres.reader import PostgresReader, PostgresReaderCaches
from memoryd_server.postgres.scope import NOW_MS, OWN, AgentScope
from memoryd_server.postgres.session import Connection, Operation
from memoryd_server.postgres.writer import AgentWriter, PostgresWriter
from memoryd_server.store import (
    BuildIdentity,
    Damage,
    Difference,
    IndexCounts,
    IndexHealth,
    StopSign,
    StoreSizes,
    VectorEngineStatus,
)
from memoryd_server.text import ANALYZER_VERSION, Analyzer

_T = TypeVar("_T")

_ATTEMPTS: Final = 3

_CREATE = f"""INSERT INTO generations(agent_id, generation, revision, identity, analyzer_version)
    VALUES(%(agent)s, %(generation)s, greatest(%(after)s + 1, {NOW_MS}), %(identity)s, %(analyzer)s)"""
_FACTS = f"""SELECT identity, mixed_chunking, analyzer_version, last_sync_ms IS NOT NULL FROM generations
    WHERE {OWN}"""  # noqa: S608 -- a constant


class PostgresStore:
    """The index of an agent, locked by this process from `open` to `close`.

    `read` and `index_vectors` may be called on any thread, everything else only on the agent's writer thread. An agent
    with more than `approximate_above` vectors gets an HNSW index; none does if that is 0.
    """

    def __init__(
        self, database: Database, agent_id: str, identity: BuildIdentity, *, approximate_above: int = 0
    ) -> None:
        self._database = database
        self._agent_id = agent_id
        self._identity = identity
        self._caches = PostgresReaderCaches()
        self._guard = threading.Lock()
        self._readers = 0
        self._is_idle = True
        self._use = DatabaseUse(database)
        self._is_locked = False
        self._end_watch: Callable[[], None] = lambda: None
        self._agent: AgentWriter | None = None
        self._version = ""
        self._hnsw = AgentHnsw(database.connect, agent_id, approximate_above)
        # The changes of the index after which the HNSW index was last compared with what is wanted.
        self._indexed = -1
        self._sizes: tuple[int, StoreSizes] | None = None
        # The revision before which text was deleted, and the run of VACUUM that removes it.
        self._purge: tuple[int, int] | None = None
        self.health = IndexHealth()
        self.built_with: BuildIdentity | None = None
        self.build_differences: tuple[Difference, ...] = ()
        self.keyword_outdated = False
        self.has_completed_sync = False
        """Whether a sync has completed since the index was created; until then, its revision has no meaning."""

    def reserve(self) -> None:
        """Lock the agent before `open`. `open` reports every other reason why the index cannot be opened.

        Raises:
            IndexBusy: another process holds the index.
        """
        with suppress(IndexReadOnly, DiskFull, IndexUnavailable):
            self._lock()

    def _lock(self) -> None:
        self._use.begin()
        if not self._is_locked:
            try:
                self._database.lock(self._agent_id)
            except BaseException:
                self.close()
                raise
            self._is_locked = True

    def open(self) -> None:
        """Lock and open the index; create it, and the tables, if they are missing.

        Raises:
            IndexBusy: another process holds the index.
            IndexTooNew: a newer memoryd has upgraded the tables.
            IndexReadOnly, DiskFull: the server accepts no writes.
            IndexUnavailable: the server cannot be reached or used.
        """
        try:
            self._lock()
            self._database.prepare()
            self._open_agent()
        except BaseException:
            self.close()
            raise

    def _open_agent(self) -> None:
        """Create the agent's rows if they are missing, raise the fence, and remove rows of an unfinished rebuild."""
        last = self._caches.counts
        with self._database.write(self._agent_id, operation=Operation.INDEX_WRITE) as connection:
            query = """INSERT INTO agents(agent_id, generation, fence) VALUES(%(agent)s, 1, 1)
                ON CONFLICT (agent_id) DO UPDATE SET fence = agents.fence + 1 RETURNING generation, fence"""
            row = connection.execute(query, {"agent": self._agent_id}).fetchone()
            if row is None:
                raise IndexDamaged("the index has no row of the agent")
            generation, fence = row
            if not self._has_generation(connection, generation):
                self._create_generation(connection, generation, last.revision if last else 0)
            scope = AgentScope.load(connection, self._agent_id)
            if _has_other_generations(scope):
                _delete_generations(scope, "generation <> %(generation)s")
            self._set_facts(scope)
            self._hnsw.open(connection)
        self._indexed = -1
        self._agent = AgentWriter(self._database, self._agent_id, fence)

    def _has_generation(self, connection: Connection, generation: int) -> bool:
        query = f"SELECT 1 FROM generations WHERE {OWN}"  # noqa: S608 -- a constant
        return connection.execute(query, {"agent": self._agent_id, "generation": generation}).fetchone() is not None

    def _create_generation(self, connection: Connection, generation: int, after_revision: int) -> None:
        values = {
            "agent": self._agent_id,
            "generation": generation,
            "after": after_revision,
            "identity": self._identity.to_json(),
            "analyzer": ANALYZER_VERSION,
        }
        connection.execute(_CREATE, values)

    def _set_facts(self, scope: AgentScope) -> None:
        stored, mixed, analyzer, completed = scope.one(_FACTS)
        self.built_with = BuildIdentity.from_json(stored)
        if self.built_with is None:
            self.build_differences = (("build", "unknown", self._identity.to_json()),)
        else:
            different = self.built_with.differences(self._identity)
            self.build_differences = different or ((("chunking", "mixed", "uniform"),) if mixed else ())
        self.keyword_outdated = analyzer != ANALYZER_VERSION
        self.has_completed_sync = completed

    def close(self) -> None:
        """Release the lock, and the connections if no other index uses them. Idempotent."""
        self._hnsw.stop()
        self._end_watch()
        self._agent = None
        if self._is_locked:
            self._is_locked = False
            self._database.unlock(self._agent_id)
        self._use.end()

    def writer(self) -> PostgresWriter:
        """Return the writer of the index, for the writer thread."""
        return PostgresWriter(self._opened, self._identity.to_json())

    @property
    def _opened(self) -> AgentWriter:
        if self._agent is None:
            raise IndexUnavailable("the index is not open")
        return self._agent

    @contextmanager
    def read(self, deadline: float | None = None) -> Iterator[PostgresReader]:
        """Open one snapshot of the index, which can be read until `time.monotonic()` passes `deadline`.

        Raises:
            DeadlineTooShort: the deadline passed during the read.
            IndexDamaged: the rows of the agent are gone; `health` records it, and the next `repair` creates them.
            IndexUnavailable: the index cannot be read.
        """
        _ = self._opened
        self._count_reader(1)
        try:
            with self._recording_damage(), self._searching(deadline) as connection:
                scope = AgentScope.load(connection, self._agent_id, deadline=deadline)
                yield PostgresReader(scope, self._caches, self._hnsw.current)
        finally:
            self._count_reader(-1)

    def _searching(self, deadline: float | None) -> AbstractContextManager[Connection]:
        return self._database.read(self._agent_id, deadline, operation=Operation.SEARCH)

    def _count_reader(self, change: int) -> None:
        with self._guard:
            self._readers += change
            self._is_idle = False

    @contextmanager
    def _recording_damage(self) -> Iterator[None]:
        """Record damage that the body meets in `health`."""
        generation = self.health.generation
        try:
            yield
        except IndexDamaged as error:
            self.health.record_damage(Damage(error.message, gone=True), generation)
            raise

    def repair(self) -> bool:
        """Create the rows of the agent, empty, if they were found missing; return whether they were.

        Raises:
            IndexBusy, IndexTooNew, IndexReadOnly, DiskFull, IndexUnavailable: as `open`.
        """
        damage = self.health.damage
        if damage is None:
            return False
        self._database.prepare(again=True)
        self._open_agent()
        reason = f"{damage.reason}; the index is being rebuilt from the Markdown"
        self.health.record_incident(Degradation(DegradationKind.INDEX_IMPAIRED, self.location, self.location, reason))
        self.health.record_repair()
        return True

    def exclusive(self, should_stop: StopSign) -> AbstractContextManager[None]:  # noqa: ARG002 -- the protocol
        """Do nothing: the lock of the agent excludes other processes from `open` to `close`."""
        return nullcontext()

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call `on_change`, on any thread, after another replica may have changed the agent, until `close`."""
        self._end_watch()
        self._end_watch = self._database.changes.watch(self._agent_id, on_change)

    def reload(self) -> None:
        """Do nothing, for the same reason."""

    def on_sound_index(self, work: Callable[[StopSign], _T], should_stop: StopSign) -> _T:
        """Call `work` and return its result; repair the index and call `work` again if damage is found during it.

        `work` receives a stop sign that is also set by damage.

        Raises:
            IndexDamaged: the rows of the agent were missing again, three times in a row.
        """
        for attempt in range(_ATTEMPTS):
            self.repair()
            try:
                with self._recording_damage():
                    result = work(lambda: should_stop() or self.health.damage is not None)
            except IndexDamaged:
                if attempt == _ATTEMPTS - 1:
                    raise
            except SyncCancelled:
                if should_stop() or self.health.damage is None:
                    raise
            else:
                if self.health.damage is None:
                    self.has_completed_sync = True
                    self.health.record_completion()
                    return result
        raise IndexDamaged(f"the rows of the agent {self._agent_id!r} in {self.location} were removed repeatedly")

    @contextmanager
    def rebuild(self) -> Iterator[PostgresWriter]:
        """Open a writer into an empty generation, which replaces the index when the block ends without an exception.

        Readers see the old generation until then, and open snapshots keep it.
        """
        agent = self._opened
        with agent.change(None) as scope:
            _delete_generations(scope, "generation <> %(generation)s")
            generation = scope.state.generation + 1
            self._create_generation(scope.connection, generation, scope.state.revision)
        try:
            yield PostgresWriter(agent, self._identity.to_json(), generation)
        except BaseException:
            # What cannot be deleted now is deleted by the next `open` or rebuild.
            with suppress(MemorydError), agent.change(None) as scope:
                _delete_generations(scope, "generation <> %(generation)s")
            raise
        self._swap(agent, generation)

    def _swap(self, agent: AgentWriter, generation: int) -> None:
        with agent.change(None) as scope:
            before = scope.state.revision
            query = "UPDATE agents SET generation = %(next)s WHERE agent_id = %(agent)s"
            scope.run(query, next=generation)
            new = AgentScope.load(scope.connection, self._agent_id, generation)
            new.run(
                f"""UPDATE generations SET revision = greatest(revision, %(before)s + 1, {NOW_MS}) WHERE {OWN}""",  # noqa: S608 -- a constant
                before=before,
            )
            # The texts of the old generation are deleted ones.
            new.run(f"UPDATE generations SET has_deleted_text = true WHERE {OWN}")  # noqa: S608 -- a constant
            self._set_facts(new)
        with suppress(MemorydError), agent.change(None) as scope:
            _delete_generations(scope, "generation <> %(generation)s")

    def degradations(self) -> tuple[Degradation, ...]:
        """Return why searches do not read a complete index; reported with every answer."""
        return () if self.health.incident is None else (self.health.incident,)

    def remarks(self) -> tuple[Degradation, ...]:
        """Return the remarks that only Status reports, because they do not affect answers."""
        return () if self.health.past_incident is None else (self.health.past_incident,)

    def refresh_keyword(self, analyzer: Analyzer, should_stop: StopSign) -> int:
        """Rebuild the keyword index from the stored text with this analyzer; return the new revision.

        Raises:
            SyncCancelled: `should_stop` returned true; the old keyword index stays in use.
        """
        with self._opened.change(None) as scope:
            revision = maintenance.refresh_keyword(scope, analyzer, should_stop)
        self.keyword_outdated = False
        return revision

    @property
    def has_deleted_text(self) -> bool:
        """Whether text was deleted since the last `purge`."""
        if self._database.vacuums.has_deletion(self._agent_id):
            return True
        with self._recording_damage(), self._opened.read(None) as scope:
            return bool(scope.one(f"SELECT has_deleted_text FROM generations WHERE {OWN}")[0])  # noqa: S608 -- a constant

    def purge(self, should_stop: StopSign = lambda: False) -> bool:  # noqa: ARG002 -- the protocol
        """Return whether VACUUM has removed the deleted text from the tables; request a run if it has not.

        A run serves all agents, on a thread of its own, so it is not waited for.
        """
        vacuums = self._database.vacuums
        with self._recording_damage(), self._opened.read(None) as scope:
            revision = scope.state.revision
        # Each deletion in the index raises the revision.
        if self._purge is None or self._purge[0] != revision:
            self._purge = revision, vacuums.request()
        if not vacuums.has_completed(self._purge[1]):
            return False
        query = f"UPDATE generations SET has_deleted_text = false WHERE {OWN} AND revision = %(revision)s"  # noqa: S608 -- a constant
        with self._recording_damage(), self._opened.change(None) as scope:
            is_purged = scope.run(query, revision=revision) > 0
        self._purge = None
        return is_purged and not vacuums.has_deletion(self._agent_id)

    def index_vectors(self) -> None:
        """Create, replace or drop the HNSW index, if the index has changed since. `close` cancels it.

        Raises:
            IndexBusy, DiskFull, IndexReadOnly, IndexUnavailable: the server does not create it; later calls try again.
        """
        agent = self._opened
        changes = agent.changes
        if changes == self._indexed:
            return
        with agent.read(None) as scope:
            plan = self._hnsw.plan(scope)
        if self._hnsw.update(plan):
            self._indexed = changes

    def release_memory(self) -> None:
        """Release the memory that an idle index holds: the frequencies of terms."""
        self._caches.release_memory()
        with self._guard:
            self._is_idle = self._readers == 0

    @property
    def is_idle(self) -> bool:
        """Whether no search has read the index since `release_memory`."""
        return self._is_idle

    @property
    def last_counts(self) -> IndexCounts | None:
        """The last counts taken, with their revision; None before the first count."""
        return self._caches.counts

    @property
    def location(self) -> str:
        """The hosts and the name of the database."""
        return self._database.location

    @property
    def schema_version(self) -> int:
        """The version of the tables."""
        return schema.SCHEMA_VERSION

    def sizes(self) -> StoreSizes:
        """Return the bytes of the agent's texts and vectors, without the indexes of the tables. Blocks."""
        counts, known = self._caches.counts, self._sizes
        if counts is not None and known is not None and known[0] == counts.revision:
            return known[1]
        with self._opened.read(None) as scope:
            query = f"""SELECT (SELECT coalesce(sum(pg_column_size(text)), 0) FROM chunks WHERE {OWN})
                + (SELECT coalesce(sum(4 * dimensions), 0) FROM vectors WHERE {OWN})"""  # noqa: S608 -- constants
            sizes = StoreSizes(int(scope.one(query)[0]), 0)
            self._sizes = scope.state.revision, sizes
        return sizes

    def probe_vector_engine(self) -> None:
        """Determine the version of pgvector. Blocks."""
        with self._database.read(self._agent_id) as connection:
            row = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
        self._version = row[0] if row else ""

    def vector_engine(self) -> VectorEngineStatus:
        """Return which engine compares vectors, with its version as last probed. No I/O, no lock."""
        return VectorEngineStatus("pgvector" if self._hnsw.current is None else "pgvector-hnsw", self._version)

    def vector_memory_bytes(self) -> int:
        """Return 0: vectors are in the memory of the server."""
        return 0


def _has_other_generations(scope: AgentScope) -> bool:
    """Return whether a rebuild has left rows: its generation is created before its rows, and deleted after them."""
    query = "SELECT 1 FROM generations WHERE agent_id = %(agent)s AND generation <> %(generation)s LIMIT 1"
    return bool(scope.all(query))


def _delete_generations(scope: AgentScope, condition: str) -> None:
    """Delete the generations of the agent of which the condition is true."""
    for table in (*schema.INDEX_TABLES, "generations"):
        scope.run(f"DELETE FROM {table} WHERE agent_id = %(agent)s AND {condition}")  # noqa: S608 -- constants
